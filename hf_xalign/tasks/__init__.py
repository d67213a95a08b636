"""Downstream tasks: fine-tune on labelled text in one language, score in many.

A [`Task`] encodes, predicts and scores one kind of task.
"""

from hf_xalign.tasks.classification import LabelledTask, SequenceTask, TaggingTask, TokenTask
from hf_xalign.tasks.crossing import code_switch, cross_lingual, mix_languages
from hf_xalign.tasks.examples import Examples, by_language, read_examples
from hf_xalign.tasks.labels import LabelSet
from hf_xalign.tasks.models import load_tagger, load_task_model
from hf_xalign.tasks.questions import QuestionTask
from hf_xalign.tasks.squad import read_questions
from hf_xalign.tasks.task import LanguageInputs, Task, TaskScores, find_task, predict, score_languages

__all__ = [
    "Examples",
    "LabelSet",
    "LabelledTask",
    "LanguageInputs",
    "QuestionTask",
    "SequenceTask",
    "TaggingTask",
    "Task",
    "TaskScores",
    "TokenTask",
    "by_language",
    "code_switch",
    "cross_lingual",
    "find_task",
    "load_tagger",
    "load_task_model",
    "mix_languages",
    "predict",
    "read_examples",
    "read_questions",
    "score_languages",
]
