package sandbox

import (
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// failing remembers on which nodes a gateway's own starts of a template have failed lately. The ledger shows that too,
// but only for creates that were retried, and only with the next view. A node is avoided for the template 10 s after the
// first failure, and twice as long after each further one, up to 5 minutes; and for all templates while it is avoided
// for more than one. When the time is over, one create tries the node, and the others avoid it until that start has
// ended or should have.
type failing map[orbit.NodeID][]failingStart

// failingStart is a template of which starts on a node have failed.
type failingStart struct {
	template string
	times    int
	// When the last start failed, and until when the node is avoided.
	at, until time.Time
}

const leastAvoided, mostAvoided, failureMemory = 10 * time.Second, 5 * time.Minute, 10 * time.Minute

// avoids reports whether a create of the template should rather start on another node.
func (f failing) avoids(node orbit.NodeID, template string, now time.Time) bool {
	live := 0
	for _, s := range f[node] {
		if now.Before(s.until) {
			if s.template == template {
				return true
			}
			live++
		}
	}
	return live > 1
}

// failed records that a start has failed.
func (f failing) failed(node orbit.NodeID, template string, now time.Time) {
	s := f.of(node, template)
	if s == nil {
		f[node] = append(f[node], failingStart{template: template})
		s = f.of(node, template)
	}
	if now.Sub(s.at) > failureMemory {
		s.times = 0
	}
	s.times, s.at = s.times+1, now
	s.until = now.Add(min(leastAvoided<<min(s.times-1, 10), mostAvoided))
}

// tried records that a create is about to start on the node, and will know within the time whether that has worked;
// negative: nobody knows when.
func (f failing) tried(node orbit.NodeID, template string, now time.Time, within time.Duration) {
	if within < 0 {
		within = mostAvoided
	}
	if s := f.of(node, template); s != nil && !now.Before(s.until) {
		s.until = now.Add(within)
	}
}

// started records that a start has worked.
func (f failing) started(node orbit.NodeID, template string) {
	f.drop(node, func(s failingStart) bool { return s.template == template })
}

// forget drops what is older than the memory of failures.
func (f failing) forget(now time.Time) {
	for node := range f {
		f.drop(node, func(s failingStart) bool { return now.Sub(s.at) > failureMemory })
	}
}

func (f failing) drop(node orbit.NodeID, which func(failingStart) bool) {
	if len(f) == 0 {
		return
	}
	if f[node] = slices.DeleteFunc(f[node], which); len(f[node]) == 0 {
		delete(f, node)
	}
}

func (f failing) of(node orbit.NodeID, template string) *failingStart {
	for i := range f[node] {
		if s := &f[node][i]; s.template == template {
			return s
		}
	}
	return nil
}
