// The address of a view, #/VIEW?PARAMETERS, which can be bookmarked and shared.

/** The view and the parameters of an address. */
export function here() {
  const [, view = "", query = ""] = /^#\/?([^?]*)\??(.*)$/s.exec(location.hash) ?? [];
  return { view: view || "overview", params: new URLSearchParams(query) };
}

/** The address of a view; parameters that are empty are left out. */
export function to(view, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

/** Change the address without a step in the history, and without a call of the view. */
export function note(view, params) {
  history.replaceState(null, "", to(view, params));
}
