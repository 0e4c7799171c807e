// Refuse what hx-csp lets through: it checks elements with hx-get and its like, but not the element of a stream
// (hx-sse:connect), and not content that asks to be put elsewhere (hx-swap-oob, hx-partial).
(() => {
  const nonce = document.currentScript.nonce;
  const isOurs = (element) => Boolean(nonce) && element?.getAttribute?.("hx-nonce") === nonce;
  htmx.registerExtension("whet-gate", {
    htmx_config_request: (element) => isOurs(element),
    htmx_before_swap: (_, detail) => {
      const wanted = detail.tasks.filter((task) => task.type === "main" || isOurs(task.fragment.firstElementChild));
      detail.tasks.splice(0, Infinity, ...wanted);
    },
  });
})();
