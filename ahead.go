package orbit

// This file makes a run of proposals cheaper to commit: what each of them will look up is read beforehand, for
// all at once. The reads of one proposal wait for each other (hash table, record, record's contents); those of
// different proposals do not, so the processor has many under way. Nothing is decided by it.

// ahead is what a run of proposals will look up.
type ahead struct {
	capsules, nodes [batchRun]uint32
	n               int
}

// plan hashes the ids that the placements of a run name.
func (a *ahead) plan(run []Proposal) {
	a.n = 0
	for i := range run {
		if len(run[i].Do) == 0 {
			continue
		}
		if place, ok := run[i].Do[0].(Place); ok {
			a.capsules[a.n], a.nodes[a.n] = hashOf(string(place.Capsule)), hashOf(string(place.Node))
			a.n++
		}
	}
}

// read reads the records. The sum is of no use but to keep the compiler from leaving the reads out.
func (a *ahead) read(s *State) (sum uint32) {
	for i := range a.n {
		a.capsules[i] = s.capsuleIDs.First(a.capsules[i])
		a.nodes[i] = s.nodeIDs.First(a.nodes[i])
	}
	for i := range a.n {
		if slot := a.capsules[i]; slot < s.capsuleBound {
			c := s.capsuleAt(slot)
			sum += uint32(len(c.ID)) + c.link
		}
		if slot := a.nodes[i]; slot < s.nodeBound {
			if n := s.nodeAt(slot); n.occupied {
				sum += uint32(len(n.Node.ID)) + n.next
			}
		}
	}
	return sum
}
