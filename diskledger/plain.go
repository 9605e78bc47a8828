package diskledger

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/plain"
)

// appendChange appends a change to text in the encoding of Change.MarshalJSON. Most changes are placements. A plain
// placement is written without the JSON package, which would take longer than judging the placement.
func appendChange(text []byte, c *orbit.Change) ([]byte, error) {
	if w := (plain.Writer{Text: text}); writePlacement(&w, c) {
		return w.Text, nil
	}
	own, err := c.MarshalJSON()
	return append(text, own...), err
}

// writePlacement writes a change that is a plain placement: one without devices and with strings that need no escapes.
// It reports whether it could; if not, the written text is to be discarded.
func writePlacement(w *plain.Writer, c *orbit.Change) bool {
	p, ok := c.Do.(orbit.Place)
	if !ok || p.Devices != 0 || p.After || p.At < 0 || c.Seq < 0 {
		return false
	}
	w.Put(`{"revision":`)
	w.Number(uint64(c.Revision))
	if c.Seq != 0 {
		w.Put(`,"seq":`)
		w.Number(uint64(c.Seq))
	}
	if !c.ID.IsZero() {
		w.Put(`,"id":`)
		w.Hex(c.ID)
	}
	w.Put(`,"do":{"place":{"capsule":`)
	w.Quoted(string(p.Capsule))
	w.Put(`,"node":`)
	w.Quoted(string(p.Node))
	if p.Note != "" {
		w.Put(`,"note":`)
		w.Quoted(p.Note)
	}
	if p.At != 0 {
		w.Put(`,"at":`)
		w.Number(uint64(p.At))
	}
	w.Put(`}}`)
	if c.Node != "" {
		w.Put(`,"node":`)
		w.Quoted(string(c.Node))
	}
	w.Put(`}`)
	return w.Plain()
}

// readChange decodes a change that appendChange has written; line has no line feed.
func readChange(line []byte, c *orbit.Change) error {
	if placement, ok := readPlacement(line); ok {
		*c = placement
		return nil
	}
	return c.UnmarshalJSON(line)
}

// readPlacement decodes a change that writePlacement has written. For any other text ok is false.
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
