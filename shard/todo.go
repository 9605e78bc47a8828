package shard

// todo is units to be looked at, first come, first served, each once.
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

// take removes the first one. It requires one.
func (t *todo) take() unit {
	u := t.line[0]
	t.line[0] = unit{}
	t.line = t.line[1:]
	delete(t.has, u)
	return u
}
