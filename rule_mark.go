package orbit

import (
	"fmt"
	"strings"
)

// A mark is a small value under a key; with the bet MarkAt it is a compare-and-swap.

// check implements [Commitment].
func (c Mark) check(v *validator) Commitment {
	v.id("mark key", c.Key)
	v.text("mark value", c.Value, v.limits.ValueBytes)
	return nil
}

// execute implements [Commitment].
func (c Mark) execute(t *tx) (NodeID, error) {
	t.setMark(&c)
	return "", nil
}

func (Mark) subject() CapsuleID { return "" }

func (Mark) effect() effect {
	return effect{}
}

// offence implements [planCheck.offence]. A plan may set some marks, and delete none.
func (c Mark) offence(t *planCheck) (id CapsuleID, why string) {
	if why := notForPlans("changes mark", c.Key, "change only marks whose key"); why != "" {
		return "", why
	}
	if c.Value == "" { // a bet (MarkAt) of a view from before it was first set would hold again
		return "", fmt.Sprintf("deletes mark %q; a plan may only set marks", c.Key)
	}
	about, name, _ := strings.Cut(c.Key[len(PlanPrefix):], "/")
	switch _, name, _ := strings.Cut(name, "/"); about {
	case "capsule":
		if id = CapsuleID(name); t.s.Capsule(id) == nil {
			return id, fmt.Sprintf("sets mark %q about a capsule that is not in its view", c.Key)
		}
		return id, t.foreign(id, "sets a mark about")
	case "gang":
		for member := range t.s.Members(GangID(name)) {
			if t.owns(member.Owner(), member.Spec) {
				return "", ""
			}
		}
		return "", fmt.Sprintf("sets mark %q about a gang of which no member is its own", c.Key)
	}
	return "", ""
}

type txMark struct {
	was, now markRecord
	dirty    bool
}

// mark returns the entry of a mark, with a zero record if there is none.
func (t *tx) mark(key string) *txMark {
	if e := t.marks.find(key); e != nil {
		return e
	}
	was, _ := t.s.marks.Get(markRecord{key: key})
	e := t.marks.add(key)
	e.was, e.now = was, was
	return e
}

// setMark sets or deletes a mark without regard to its present value; with a MarkAt bet that is a compare-and-swap.
func (t *tx) setMark(c *Mark) {
	e := t.mark(c.Key)
	e.now, e.dirty = markRecord{key: c.Key, value: c.Value, changed: t.rev}, true
}

// publishMarks writes marks; one with an empty value is deleted.
func (s *State) publishMarks(t *tx) {
	for _, e := range t.marks.entries {
		switch {
		case !e.dirty:
		case e.now.value == "":
			s.marks.Delete(e.now)
			s.left.Marks = s.rev
		default:
			s.marks.ReplaceOrInsert(e.now)
		}
	}
}
