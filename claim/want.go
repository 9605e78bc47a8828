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

// filter is a want as a list of labels. Wants that ask for the same have the same text.
type filter struct {
	labels [][2]string
	text   string
}

func (w *Want) filter() (f filter) {
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

// line is where those who want the same wait.
type line struct {
	queue
	filter
	// Slots that became ready before this one do not match, or are not ready any more.
	from uint64
	// One has come, or come back after a conflict, since the source was last asked.
	stirred bool
}

// lines are all the requests that wait, by what they want. Most pools have one line only.
type lines struct {
	all map[string]*line
	// How many there may be before those without requests are forgotten. One that comes back later looks at all
	// slots.
	most int
}

// of returns the line for a filter.
func (s *lines) of(f *filter) *line {
	l := s.all[f.text]
	if l == nil {
		if len(s.all) >= s.most {
			maps.DeleteFunc(s.all, func(_ string, l *line) bool { return l.n == 0 })
			s.most = max(64, 2*len(s.all))
		}
		l = &line{filter: *f}
		if s.all == nil {
			s.all = map[string]*line{}
		}
		s.all[f.text] = l
	}
	return l
}

// next returns the line of the request that has waited longest of those for which a slot is ready; nil: there
// is none.
func (s *lines) next(r *ready) (next *line) {
	for _, l := range s.all {
		if l.n > 0 && (next == nil || l.first().seq < next.first().seq) && r.serves(l) {
			next = l
		}
	}
	return next
}

// waiting returns how many requests wait, how many of them for slots of which none is ready, and whether one of
// these has come since the source was last asked.
func (s *lines) waiting(r *ready) (all, unserved int, stirred bool) {
	for _, l := range s.all {
		all += l.n
		if l.n > 0 && !r.serves(l) {
			unserved += l.n
			stirred = stirred || l.stirred
		}
	}
	return all, unserved, stirred
}

// remove takes a ticket out of its line, if it is in one.
func (s *lines) remove(t *ticket) {
	if t.next != nil {
		s.all[t.want.text].remove(t)
	}
}
