package orbit

import "iter"

// placements remembers which proposals placed a capsule before its last placement. It is immutable.
type placements struct {
	id     ProposalID
	at     Revision
	depth  int
	before *placements
}

// Placements yields which proposals have placed the capsule and when, the newest first; older ones are remembered within
// [Limits.PlacementIDs], and those without an id not at all.
func (c *Capsule) Placements() iter.Seq2[ProposalID, Revision] {
	return func(yield func(ProposalID, Revision) bool) {
		if !c.PlacedBy.IsZero() && !yield(c.PlacedBy, c.PlacedAt) {
			return
		}
		for p := c.earlier; p != nil; p = p.before {
			if !yield(p.id, p.at) {
				return
			}
		}
	}
}

// placedBy returns the revision at which the proposal placed c, 0 if it did not.
func (c *Capsule) placedBy(id ProposalID) Revision {
	if id.IsZero() {
		return 0
	}
	if c.PlacedBy == id { // nearly always, where it is asked: in every commit
		return c.PlacedAt
	}
	for p := c.earlier; p != nil; p = p.before {
		if p.id == id {
			return p.at
		}
	}
	return 0
}

// remember moves the last placement into the past, of which at most limit are kept.
func (c *Capsule) remember(limit int) {
	if c.PlacedBy.IsZero() {
		return
	}
	c.earlier = trim(&placements{id: c.PlacedBy, at: c.PlacedAt, before: c.earlier}, limit)
}

// trim copies the list down to the limit when it has grown to twice that, so that the cost is constant.
func trim(p *placements, limit int) *placements {
	if p.before != nil {
		p.depth = p.before.depth + 1
	}
	if p.depth < 2*limit {
		return p
	}
	var kept []placements
	for q := p; q != nil && len(kept) < limit; q = q.before {
		kept = append(kept, *q)
	}
	for i := range kept {
		kept[i].depth, kept[i].before = limit-1-i, nil
		if i+1 < len(kept) {
			kept[i].before = &kept[i+1]
		}
	}
	return &kept[0]
}

// restored builds the list of earlier placements from its newest-first form.
func restored(ids []dumpID) *placements {
	var p *placements
	for i := len(ids) - 1; i >= 0; i-- {
		next := &placements{id: ids[i].ID, at: ids[i].At, before: p}
		if p != nil {
			next.depth = p.depth + 1
		}
		p = next
	}
	return p
}
