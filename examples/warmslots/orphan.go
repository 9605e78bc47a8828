package main

import "github.com/orbitsched/orbit"

// orphan reports whether a sandbox waits though no host can help it: it is a fork that has lost its host, and its
// parent was deleted before, or is an orphan too. It waits until its client deletes it.
func orphan(s *orbit.State, c *orbit.Capsule) bool {
	for c.Pending() && c.Spec.Start.Parent != "" {
		if c = s.Capsule(c.Spec.Start.Parent); c == nil || c.Released() {
			return true
		}
	}
	return false
}

// orphans counts them.
func orphans(s *orbit.State) (n int) {
	for _, c := range s.Pending() {
		if orphan(s, c) {
			n++
		}
	}
	return n
}
