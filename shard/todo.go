package shard

// todo is a queue of units to decide on, each unit once.
type todo struct {
	line []unit
	has  map[unit]bool
}

func (t *todo) add(u unit) {
	if t.has == nil {
		t.has = map[unit]bool{}
	}
	if !t.has[u] {
		t.has[u] = true
		t.line = append(t.line, u)
	}
}

func (t *todo) len() int { return len(t.line) }

// take removes and returns the first unit. The queue must not be empty.
func (t *todo) take() unit {
	u := t.line[0]
	t.line[0] = unit{}
	t.line = t.line[1:]
	delete(t.has, u)
	return u
}
