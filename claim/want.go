package claim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Labels of a slot that a [Want] speaks of.
const (
	// ImageLabel, followed by the name of a container, is the label whose value is the container's image.
	ImageLabel = "image/"
	// PhaseLabel is the label whose value is the slot's phase.
	PhaseLabel = "phase"
)

// Want says which slots will do for a request: those that have all of it among their labels. The zero value
// wants no slot in particular.
type Want struct {
	// By the name of the container; see [ImageLabel].
	Images map[string]string
	// By key.
	Labels map[string]string
	// See [PhaseLabel]; empty: any.
	Phase string
}

func (w Want) clone() Want {
	return Want{maps.Clone(w.Images), maps.Clone(w.Labels), w.Phase}
}

// filter is a want as a sorted list of labels. Wants that ask for the same have the same text.
type filter struct {
	labels [][2]string
	text   string
}

func newFilter(w *Want) (f filter) {
	for name, image := range w.Images {
		f.labels = append(f.labels, [2]string{ImageLabel + name, image})
	}
	for key, value := range w.Labels {
		f.labels = append(f.labels, [2]string{key, value})
	}
	if w.Phase != "" {
		f.labels = append(f.labels, [2]string{PhaseLabel, w.Phase})
	}
	slices.SortFunc(f.labels, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	var words []string
	for _, l := range f.labels {
		words = append(words, fmt.Sprintf("%q: %q", l[0], l[1]))
	}
	f.text = strings.Join(words, ", ")
	return f
}

// matches reports whether labels have all that is wanted.
func (f *filter) matches(labels map[string]string) bool {
	for _, l := range f.labels {
		if value, there := labels[l[0]]; !there || value != l[1] {
			return false
		}
	}
	return true
}

// first returns the first label that is wanted; zero: none is.
func (f *filter) first() (label [2]string) {
	if len(f.labels) > 0 {
		label = f.labels[0]
	}
	return label
}
