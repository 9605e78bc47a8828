package inspect

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// refusal returns why a request is refused because of its host or its origin, or the empty string if it is not.
// Browsers say in headers from which site a request comes. Other clients send no such headers and are not refused; the
// importer's mux must decide whether they may read the page. A link from another site may open the page itself, because
// a site that only links to a page cannot read it.
func (h *Handler) refusal(r *http.Request, index bool) string {
	if len(h.Hosts) > 0 && !slices.ContainsFunc(h.Hosts, func(name string) bool { return strings.EqualFold(name, hostname(r.Host)) }) {
		return "the page may not be asked for under this name; add it to inspect.Handler.Hosts"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		from, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(from.Host, r.Host) {
			return "requests from pages of other origins are refused"
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none": // none: no site caused the request; the user typed the address, for example
		return ""
	}
	if index && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return ""
	}
	return "requests from pages of other origins are refused"
}

// hostname returns a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}
