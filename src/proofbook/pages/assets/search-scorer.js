// What Sphinx's search ranks by, with one rule more: what was typed word for word as the id of a
// figure, a table or a number comes first. Ids that only share a word with it come after the pages.
var Scorer = {
  score: (result) => {
    const [, title, , , score] = result;
    const query = new URLSearchParams(window.location.search).get("q") || "";
    return query.trim().toLowerCase() === title.toLowerCase() ? score + 1000 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
