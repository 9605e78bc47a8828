package shard

// todo is units to be looked at, first come, first served, each once.
type todo struct {
	line []unit
	// First that is left.
	head int
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

func (t *todo) len() int { return len(t.line) - t.head }

// take removes the first one. It requires one.
func (t *todo) take() unit {
	u := t.line[t.head]
	t.line[t.head] = unit{}
	delete(t.has, u)
	if t.head++; t.head > 1024 && t.head > len(t.line)/2 || t.head == len(t.line) {
		t.line, t.head = append(t.line[:0], t.line[t.head:]...), 0
	}
	return u
}
