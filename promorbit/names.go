package promorbit

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// namespace begins the name of each metric.
	namespace = "orbit"
	// other is the value of a label for all names that have no value of their own.
	other = "other"
	// defaultNames is the default of the fields Names.
	defaultNames = 100
)

// text returns a valid value of a label. A value that is not UTF-8 would make the scrape fail, so text replaces the
// wrong bytes.
func text(value string) string { return strings.ToValidUTF8(value, "\uFFFD") }

// firstNames gives values of a label to the first names that come, which keep them for good. This is for counters,
// whose series must not end.
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

// presentNames gives values of a label to names that exist at a scrape. A name keeps its value as long as it exists, so
// that its series does not come and go.
type presentNames struct {
	most  int
	shown map[string]bool
}

// present is a name that exists at a scrape, with its weight: the heaviest names are shown first.
type present struct {
	name   string
	weight int64
}

// show decides which of the names have a value of their own: first those that have one already, and then the heaviest.
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
