// Cards beside numbers and terms, and citations that copy themselves.
//
// A page is whole without this script: a number is a link to its row in the list of numbers, a
// term a link to the glossary, and a citation stands written out. Needs Floating UI (vendor/).
(() => {
  "use strict";

  const HOVER_MS = 120; // A pointer that only passes opens nothing.
  const LEAVE_MS = 250; // Time to move from a number to its card.
  const NOTE_MS = 4000;

  const embedded = document.getElementById("kv-cards");
  const cards = embedded ? JSON.parse(embedded.textContent) : { numbers: {}, terms: {} };
  const main = document.querySelector("main") ?? document.body;

  /** Make an element; a child that is null or undefined is left out. */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  // ---------------------------------------------------------------- copying

  const status = element("p", { class: "kv-unseen", role: "status" });

  /** Say to those who listen, and write beside a button for those who look. */
  function tell(button, words) {
    button.parentElement.querySelector(".kv-note")?.remove();
    const note = element("span", { class: "kv-note", "aria-hidden": "true" }, words);
    button.parentElement.append(note);
    status.textContent = "";
    // A region that is emptied and filled at once is not read again.
    requestAnimationFrame(() => { status.textContent = words; });
    setTimeout(() => note.remove(), NOTE_MS);
  }

  /** Copy what an element says; where that is refused, select it for the reader to copy. */
  async function copy(button, text, name) {
    try {
      await navigator.clipboard.writeText(text.textContent);
      tell(button, `${name} copied.`);
    } catch {
      text.hidden = false;
      getSelection().selectAllChildren(text);
      tell(button, `${name} selected: copy it with your keyboard.`);
    }
  }

  function copyButton(text, name) {
    const button = element("button", { type: "button", class: "kv-button" }, `Copy ${name}`);
    button.addEventListener("click", () => copy(button, text, name));
    return button;
  }

  for (const cite of document.querySelectorAll("details.kv-cite")) {
    const texts = [...cite.querySelectorAll("[data-copy]")];
    const buttons = texts.map((text) => copyButton(text, text.dataset.copy));
    cite.querySelector("summary").after(element("p", { class: "kv-actions" }, ...buttons));
  }

  // ---------------------------------------------------------------- what a card says

  function link([words, href]) {
    return href ? element("a", { href }, words) : words;
  }

  function facts(pairs) {
    const list = element("dl");
    for (const [name, ...said] of pairs)
      if (said[0] !== undefined) list.append(element("dt", {}, name), element("dd", {}, ...said));
    return list;
  }

  function numberCard(id) {
    const about = cards.numbers[id];
    const texts = ["BibTeX", "text"].map((name) => {
      const text = element("pre", { class: "kv-citation", hidden: "" }, about[name]);
      return [copyButton(text, name), text];
    });
    return [
      element("p", { id: "kv-card-name" }, element("code", {}, id)),
      element("div", { id: "kv-card-facts" }, facts([
        ["Kind", about.kind],
        ["Exact value", about.value],
        ["Source", about.source && link(about.source)],
        ["Made in", link(about.page), ", cell ", element("code", {}, about.cell)],
      ])),
      element("p", { class: "kv-actions" }, ...texts.map(([button]) => button),
        about.row && element("a", { href: about.row }, "All numbers")),
      ...texts.map(([, text]) => text),
    ];
  }

  function termCard(anchor, href) {
    const [term, meaning] = cards.terms[anchor];
    const definition = element("div", { id: "kv-card-facts" });
    definition.innerHTML = meaning; // Written by the build, from the glossary.
    return [
      element("p", { id: "kv-card-name" }, element("strong", {}, term)),
      definition,
      element("p", { class: "kv-actions" }, element("a", { href }, "Glossary")),
    ];
  }

  // ---------------------------------------------------------------- the card

  const card = element("div", {
    class: "kv-popup", id: "kv-card", role: "dialog", tabindex: "-1", hidden: "",
    "aria-labelledby": "kv-card-name",
  });
  let shownFor = null; // The link that the card belongs to.
  let pinned = false; // Opened on purpose: stays until it is closed.
  let follow = () => {}; // Stops following the link as the page scrolls.
  let timer = 0;

  const anchorOf = (link) => decodeURIComponent(link.hash.slice(1));

  /** The number or term with a card at which something happened, or null. */
  function trigger(target) {
    const found = target instanceof Element ? target.closest("a") : null;
    if (!found) return null;
    if (found.dataset.number in cards.numbers) return found;
    return found.querySelector(".std-term") && anchorOf(found) in cards.terms ? found : null;
  }

  function place() {
    const { computePosition, flip, inline, offset, shift } = window.FloatingUIDOM;
    computePosition(shownFor, card, {
      strategy: "fixed",
      placement: "bottom-start",
      middleware: [inline(), offset(6), flip({ padding: 8 }), shift({ padding: 8 })],
    }).then(({ x, y }) => { card.style.left = `${x}px`; card.style.top = `${y}px`; });
  }

  function show(link) {
    clearTimeout(timer);
    if (shownFor === link) return;
    hide();
    const { number } = link.dataset;
    card.replaceChildren(...(number ? numberCard(number) : termCard(anchorOf(link), link.href)));
    card.hidden = false;
    shownFor = link;
    link.setAttribute("aria-describedby", "kv-card-facts");
    if (number) link.setAttribute("aria-expanded", "true");
    follow = window.FloatingUIDOM.autoUpdate(link, card, place);
  }

  function hide() {
    clearTimeout(timer);
    if (!shownFor) return;
    follow();
    card.hidden = true;
    shownFor.removeAttribute("aria-describedby");
    if (shownFor.dataset.number) shownFor.setAttribute("aria-expanded", "false");
    shownFor = null;
    pinned = false;
  }

  function pin(link) {
    show(link);
    pinned = true;
    card.focus({ preventScroll: true });
  }

  /** Close the card; who was within it is back at its number. */
  function close() {
    if (card.contains(document.activeElement)) shownFor.focus({ preventScroll: true });
    hide();
  }

  const soon = (action, wait) => { clearTimeout(timer); timer = setTimeout(action, wait); };
  const isHeld = () => pinned || (shownFor !== null && shownFor === document.activeElement);

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch" || pinned) return;
    const link = trigger(event.target);
    if (link && link !== shownFor) soon(() => show(link), HOVER_MS);
    else if (link || card.contains(event.target)) clearTimeout(timer);
  });

  document.addEventListener("pointerout", (event) => {
    const left = trigger(event.target) || card.contains(event.target);
    if (event.pointerType === "touch" || !left || pinned) return;
    soon(() => { if (!isHeld()) hide(); }, LEAVE_MS);
  });

  document.addEventListener("focusin", (event) => {
    const link = trigger(event.target);
    if (link && link.matches(":focus-visible")) show(link);
    else if (!link && !card.contains(event.target)) hide();
  });

  document.addEventListener("focusout", (event) => {
    if (event.target === shownFor && !pinned && !card.matches(":hover")) hide();
  });

  let touched = false;
  document.addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch";
    if (card.contains(event.target)) pinned = true;
    else if (trigger(event.target) !== shownFor) hide();
  });

  document.addEventListener("click", (event) => {
    const link = trigger(event.target);
    const plainly = !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
    if (!link || !plainly || !(link.dataset.number || touched)) return;
    event.preventDefault();
    if (pinned && shownFor === link) close();
    else pin(link);
  });

  document.addEventListener("keydown", (event) => {
    touched = false;
    if (!shownFor) return;
    if (event.key === "Escape") close();
    if (event.key !== "Tab" || !card.contains(document.activeElement)) return;
    // The card stands at the end of the page, but is read where its number is.
    const stops = [...card.querySelectorAll("a, button")];
    const at = stops.indexOf(document.activeElement);
    if (event.shiftKey && at <= 0) {
      event.preventDefault();
      close();
    } else if (!event.shiftKey && at === stops.length - 1) close();
  });

  for (const number of document.querySelectorAll("a[data-number]")) {
    // Said by the card from now on, and not by the browser's own as well.
    number.setAttribute("aria-description", number.title);
    number.removeAttribute("title");
    number.setAttribute("aria-haspopup", "dialog");
    number.setAttribute("aria-expanded", "false");
  }
  main.append(card, status);

  // ---------------------------------------------------------------- cells

  /** Unfold the code of the cell that the address names. */
  function unfold() {
    const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = named?.closest("div.cell")?.querySelector("details.hide");
    if (folded && named.id.startsWith("cell-")) folded.open = true;
  }
  window.addEventListener("hashchange", unfold);
  unfold();
})();
