// What the page does besides its charts: its colors, what is folded, where the reader is.
// Light and dark
const theme = document.getElementById("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const showTheme = () => {
  const dark = document.documentElement.style.colorScheme === "dark" || (!document.documentElement.style.colorScheme && systemDark.matches);
  theme.textContent = dark ? "Light" : "Dark";
  theme.setAttribute("aria-label", dark ? "Change to light colors" : "Change to dark colors");
  return dark;
};
theme.addEventListener("click", () => {
  document.documentElement.style.colorScheme = showTheme() ? "light" : "dark";
  const dark = showTheme();
  for (const source of document.querySelectorAll("source.dark")) source.media = dark ? "all" : "not all";
});
systemDark.addEventListener("change", showTheme);
theme.hidden = false;
showTheme();

// A link to what is folded opens it
const unfold = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let box = target && target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", unfold);

// Where the reader is, in the contents
const entries = [...document.querySelectorAll("nav a")];
const markEntry = () => {
  const line = document.querySelector("nav").offsetHeight + innerHeight / 4;
  const passed = entries.filter((a) => document.querySelector(a.hash).getBoundingClientRect().top <= line);
  const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const here = end ? entries.at(-1) : passed.at(-1) ?? entries[0];
  for (const a of entries) a === here ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current");
};
addEventListener("scroll", markEntry, { passive: true });
addEventListener("resize", markEntry);

const everything = JSON.parse(document.getElementById("data").textContent);
for (const figure of document.querySelectorAll("figure[data-figure]")) {
  const data = everything[figure.dataset.figure];
  if (!data) continue;
  ({ losses, gates, overview })[data.kind](figure, data);
  figure.classList.add("live");
}
unfold();
markEntry();
