// What is done to the book's one page before it is printed. Each is called by name.

const kvPrint = {
  // All fonts and drawings first, then one layout: laid out in pieces, it rounds differently each time.
  async ready() {
    await Promise.all([...document.fonts].map((font) => font.load()));
    // A drawing that is not there is reported by its address.
    await Promise.allSettled([...document.images].map((image) => image.decode()));
    document.body.hidden = false;
  },

  // Wide tables and equations fit: first smaller type, then narrower words, then a leaf on its side.
  fit([leastPt, wholePx]) {
    const over = (box, inner) =>
      inner.getBoundingClientRect().right > box.getBoundingClientRect().right + 0.5;
    const shrink = (box, inner, least) => {
      inner.style.removeProperty("font-size");
      let size = parseFloat(getComputedStyle(inner).fontSize);
      while (over(box, inner) && (size - 0.25) * 0.75 >= least) {
        size -= 0.25;
        inner.style.setProperty("font-size", `${size}px`);
      }
      return !over(box, inner);
    };
    for (const table of document.querySelectorAll("main table")) {
      const box = table.parentElement;
      const fits =
        shrink(box, table, leastPt + 1) ||
        (table.classList.add("kvp-narrow"), shrink(box, table, leastPt));
      if (!fits) {
        table.classList.remove("kvp-narrow");
        box.classList.add("kvp-wide");
        box.style.page = `${table.closest(".kvp-chapter").style.page}-wide`;
        shrink(box, table, leastPt);
      } else if (box.getBoundingClientRect().height < wholePx) {
        box.classList.add("kvp-whole");
      }
    }
    for (const block of document.querySelectorAll("main .kv-math")) {
      const formula = block.querySelector("math");
      if (formula) shrink(block, formula, leastPt);
    }
  },

  // Everything that would be cut off: wider than its page, higher than one, or in a box that hides.
  clipped(heightPx) {
    const found = [];
    for (const part of document.body.querySelectorAll("*")) {
      const own = part.getBoundingClientRect();
      if (!own.width || (part.localName !== "math" && part.closest("math"))) continue;
      const page = (part.closest(".kvp-wide") || document.body).getBoundingClientRect();
      const hides =
        getComputedStyle(part).overflowX !== "visible" && part.scrollWidth > part.clientWidth + 1;
      const high = part.matches("figure, img, tr, .kvp-whole") && own.height > heightPx;
      if (hides || high || own.right > page.right + 1 || own.left < page.left - 1) {
        const words = part.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
        found.push(`<${part.localName} class="${part.className}" id="${part.id}"> ${words}`);
      }
    }
    return found;
  },
};
