package logledger

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/plain"
)

// This file reads changes as diskledger's format 1 has them. Nothing writes them any more.

// readChange decodes the line of a change, without its line feed.
func readChange(line []byte, c *orbit.Change) error {
	if placement, ok := readPlacement(line); ok {
		*c = placement
		return nil
	}
	return c.UnmarshalJSON(line)
}

// readPlacement decodes a plain placement: one without devices, and with texts that need no escapes. Most changes are
// of this kind, and reading them by package json would take ten times as long. For any other text ok is false.
func readPlacement(line []byte) (c orbit.Change, ok bool) {
	r, p := plain.Read(line), orbit.Place{}
	r.Expect(`{"revision":`)
	c.Revision = orbit.Revision(r.Positive())
	if r.Has(`,"seq":`) {
		c.Seq = int(r.Positive())
	}
	if r.Has(`,"id":`) {
		c.ID = r.Hex()
	}
	r.Expect(`,"do":{"place":{"capsule":`)
	p.Capsule = orbit.CapsuleID(r.Text())
	r.Expect(`,"node":`)
	p.Node = orbit.NodeID(r.Text())
	if r.Has(`,"note":`) {
		p.Note = string(r.Text())
	}
	if r.Has(`,"at":`) {
		p.At = orbit.Instant(r.Positive())
	}
	r.Expect(`}}`)
	if r.Has(`,"node":`) {
		c.Node = orbit.NodeID(r.Text())
	}
	r.Expect(`}`)
	c.Do = p
	return c, r.Done()
}
