// Browsers start no worker from a file:// address. There, run the script of the search in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = `
        postMessage = (data) => answer(data);
        importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() => new Promise((done) => {
          const script = document.createElement("script");
          script.src = address;
          script.onload = done;
          document.body.appendChild(script);
        })), Promise.resolve());`;
      frame.contentDocument.open();
      frame.contentDocument.write(`<body><script>${script}<\/script><script src="${address}"><\/script></body>`);
      frame.contentDocument.close();
      this.ready = new Promise((done) => frame.addEventListener("load", done, { once: true }));
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
