package inspect

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// refusal says why a request is refused before anything is looked at; empty: it is not. A browser says where a request comes from;
// other clients say nothing, and whether these may read the page is for the importer's mux to decide. A link from elsewhere may lead to
// the page itself, because a page that only links cannot read what it leads to.
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
	case "", "same-origin", "none": // none: the user has typed the address
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
