package claim

import (
	"container/list"
	"maps"
)

// line is where the requests wait that want the same, in order of arrival.
type line struct {
	want     filter
	requests list.List
	// Slots that became ready before this one do not match, or are not ready any more.
	from uint64
}

// first returns the request that has waited longest. It requires that one waits.
func (l *line) first() *request { return l.requests.Front().Value.(*request) }

// lines are all the requests that wait. Most pools have one line only.
type lines struct {
	waiting int // requests
	byWant  map[string]*line
	// By the first label that the line wants: a slot that becomes ready can only match lines found under one of its
	// labels, or under none.
	byLabel map[[2]string][]*line
	// Lines that have a request, and that a ready slot may match. All others cost nothing until one becomes ready.
	open map[*line]struct{}
	// How many lines there may be before those without requests are forgotten.
	most int
}

// keptLines is how many lines are kept at least. One that has been forgotten and comes back looks at all slots again.
const keptLines = 64

func newLines() lines {
	return lines{byWant: map[string]*line{}, byLabel: map[[2]string][]*line{}, open: map[*line]struct{}{}, most: keptLines}
}

// add puts a request into its line: one that has just arrived at the end, one that has met a conflict where it was.
// Requests that have never left the line have arrived later than any that did, so the search is short from either end.
func (s *lines) add(r *request) {
	l := s.of(&r.want)
	if last := l.requests.Back(); last == nil || last.Value.(*request).seq < r.seq {
		r.place = l.requests.PushBack(r)
	} else {
		next := l.requests.Front()
		for next.Value.(*request).seq < r.seq {
			next = next.Next()
		}
		r.place = l.requests.InsertBefore(r, next)
	}
	s.waiting++
	s.open[l] = struct{}{}
}

// remove takes a request out of its line, if it waits.
func (s *lines) remove(r *request) {
	if r.place != nil {
		s.byWant[r.want.text].requests.Remove(r.place)
		r.place = nil
		s.waiting--
	}
}

// of returns the line for a filter.
func (s *lines) of(f *filter) *line {
	l := s.byWant[f.text]
	if l == nil {
		if len(s.byWant) >= s.most {
			s.forget()
		}
		l = &line{want: *f}
		s.byWant[f.text] = l
		s.byLabel[f.first()] = append(s.byLabel[f.first()], l)
	}
	return l
}

// forget drops the lines without requests.
func (s *lines) forget() {
	maps.DeleteFunc(s.byWant, func(_ string, l *line) bool { return l.requests.Len() == 0 })
	clear(s.byLabel)
	for _, l := range s.byWant {
		s.byLabel[l.want.first()] = append(s.byLabel[l.want.first()], l)
	}
	s.most = max(keptLines, 2*len(s.byWant))
}

// offer takes note that a slot with these labels has become ready.
func (s *lines) offer(labels map[string]string) {
	s.openFor([2]string{}, labels)
	for key, value := range labels {
		s.openFor([2]string{key, value}, labels)
	}
}

func (s *lines) openFor(first [2]string, labels map[string]string) {
	for _, l := range s.byLabel[first] {
		if l.requests.Len() > 0 && l.want.matches(labels) {
			s.open[l] = struct{}{}
		}
	}
}

// served reports whether a line has a request and a ready slot matches it. If not, the line is not open any more.
func (s *lines) served(l *line, r *ready) bool {
	if l.requests.Len() > 0 && r.matches(l) {
		return true
	}
	delete(s.open, l)
	return false
}

// next returns the line of the request that has waited longest of those that a ready slot matches; nil: there is
// none.
func (s *lines) next(r *ready) (next *line) {
	for l := range s.open {
		if s.served(l, r) && (next == nil || l.first().seq < next.first().seq) {
			next = l
		}
	}
	return next
}

// unserved returns how many requests wait that no ready slot matches.
func (s *lines) unserved(r *ready) int {
	n := s.waiting
	for l := range s.open {
		if s.served(l, r) {
			n -= l.requests.Len()
		}
	}
	return n
}
