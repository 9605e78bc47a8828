package promorbit

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// namespace begins the name of each metric.
	namespace = "orbit"
	// other is the value of a label for all that have no value of their own.
	other = "other"
	// defaultNames is the number of values of a label where the importer sets none.
	defaultNames = 100
)

// text makes a valid value of a label, because a value that is no UTF-8 would make the scrape fail.
func text(value string) string { return strings.ToValidUTF8(value, "\uFFFD") }

// firstNames gives values of a label to the first names that come, for counters: they keep them for good.
type firstNames struct {
	most  int
	known map[string]string
}

// value returns the value of the label for a name.
func (n *firstNames) value(name string) string {
	if v, ok := n.known[name]; ok {
		return v
	}
	if len(n.known) >= cmp.Or(max(n.most, 0), defaultNames) {
		return other
	}
	if n.known == nil {
		n.known = map[string]string{}
	}
	v := text(name)
	n.known[strings.Clone(name)] = v
	return v
}

// presentNames gives values of a label to names that are there at a scrape. A name keeps its value as long as it is there, so
// that its series does not come and go.
type presentNames struct {
	most  int
	shown map[string]bool
}

// present is a name that is there, and how much it matters to be shown.
type present struct {
	name   string
	weight int64
}

// show decides which of the names have a value of their own: those that have it already, and then the weightiest.
func (n *presentNames) show(all []present) {
	kept, rest := map[string]bool{}, all[:0]
	for _, p := range all {
		if n.shown[p.name] {
			kept[p.name] = true
		} else {
			rest = append(rest, p)
		}
	}
	n.shown = kept
	free := cmp.Or(max(n.most, 0), defaultNames) - len(kept)
	if free < len(rest) {
		slices.SortFunc(rest, func(a, b present) int {
			return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.name, b.name))
		})
		rest = rest[:max(free, 0)]
	}
	for _, p := range rest {
		kept[p.name] = true
	}
}

// value returns the value of the label for a name.
func (n *presentNames) value(name string) string {
	if n.shown[name] {
		return text(name)
	}
	return other
}
