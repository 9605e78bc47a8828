package claim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The keys of the labels that Want.Images and Want.Phase are compared with, and that [Changes] set.
const (
	// ImageLabel, followed by the name of a container, is the label whose value is the container's image.
	ImageLabel = "image/"
	// PhaseLabel is the label whose value is the slot's phase.
	PhaseLabel = "phase"
)

// Want says which slots are suitable for a request: those whose labels include all that it names. The zero value
// matches every slot.
type Want struct {
	// Images are the container images that the slot must have, by the name of the container; see [ImageLabel].
	Images map[string]string
	// Labels are labels that the slot must have, by key.
	Labels map[string]string
	// Phase is the phase that the slot must be in; see [PhaseLabel]. Empty: any phase.
	Phase string
}

func (w Want) clone() Want {
	return Want{maps.Clone(w.Images), maps.Clone(w.Labels), w.Phase}
}

// filter is a want as a sorted list of labels. Equal wants have the same text.
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

// matches reports whether labels include all wanted ones.
func (f *filter) matches(labels map[string]string) bool {
	for _, l := range f.labels {
		if value, there := labels[l[0]]; !there || value != l[1] {
			return false
		}
	}
	return true
}

// first returns the first wanted label; zero: no label is wanted.
func (f *filter) first() (label [2]string) {
	if len(f.labels) > 0 {
		label = f.labels[0]
	}
	return label
}
