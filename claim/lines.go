package claim

import (
	"container/list"
	"maps"
)

// line is the queue of the waiting requests that have the same want, in order of arrival.
type line struct {
	want     filter
	requests list.List
	// from is a position in the order of ready slots: no ready slot before it matches.
	from uint64
}

// first returns the request that has waited longest. The line must not be empty.
func (l *line) first() *request { return l.requests.Front().Value.(*request) }

// lines holds all waiting requests. In most pools there is only one line.
type lines struct {
	// waiting is the number of waiting requests.
	waiting int
	byWant  map[string]*line
	// byLabel has each line under the first label that it wants, or under the zero label if it wants none. So a slot can
	// match only the lines that are found under one of its labels or under the zero label.
	byLabel map[[2]string][]*line
	// open are the lines that have requests and that a ready slot may match. All other lines cost nothing until a slot
	// that matches them becomes ready.
	open map[*line]struct{}
	// most is the number of lines at which those without requests are dropped.
	most int
}

// keptLines is the least value of lines.most. Empty lines are kept because a line that has been dropped and made again
// has to be compared with all ready slots again.
const keptLines = 64

func newLines() lines {
	return lines{byWant: map[string]*line{}, byLabel: map[[2]string][]*line{}, open: map[*line]struct{}{}, most: keptLines}
}

// add puts a request into its line in order of arrival: a new one at the end, one that returns after a conflict near
// the front. The search from the front is short, because all requests before its place have had a conflict too.
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

// forget drops the empty lines.
func (s *lines) forget() {
	maps.DeleteFunc(s.byWant, func(_ string, l *line) bool { return l.requests.Len() == 0 })
	clear(s.byLabel)
	for _, l := range s.byWant {
		s.byLabel[l.want.first()] = append(s.byLabel[l.want.first()], l)
	}
	s.most = max(keptLines, 2*len(s.byWant))
}

// offer opens the lines that a slot with these labels matches.
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

// served reports whether a line has requests and a ready slot matches it. If not, it closes the line.
func (s *lines) served(l *line, r *ready) bool {
	if l.requests.Len() > 0 && r.matches(l) {
		return true
	}
	delete(s.open, l)
	return false
}

// next returns the line whose first request has waited longest, among the lines that a ready slot matches; nil: no
// line.
func (s *lines) next(r *ready) (next *line) {
	for l := range s.open {
		if s.served(l, r) && (next == nil || l.first().seq < next.first().seq) {
			next = l
		}
	}
	return next
}

// unserved returns the number of waiting requests that no ready slot matches.
func (s *lines) unserved(r *ready) int {
	n := s.waiting
	for l := range s.open {
		if s.served(l, r) {
			n -= l.requests.Len()
		}
	}
	return n
}
