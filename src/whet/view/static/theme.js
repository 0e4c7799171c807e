// Sets the theme that the reader chose before the first paint. Not deferred, and small for that reason.
{
  const theme = localStorage.getItem("whet-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
