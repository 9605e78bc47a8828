package orbit

import (
	"encoding/json"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// Equal specs share one copy in this process, so that a pointer stands for a class and whatever is computed
// for a class is computed once. The table holds its copies weakly: a class lives as long as a capsule, a
// snapshot or an engine knows it.
var classes = struct {
	sync.Mutex
	byKey map[string]weak.Pointer[Spec]
}{byKey: map[string]weak.Pointer[Spec]{}}

// interned returns the one copy of s, which is s itself if it is the first of its kind. It requires s to be a clone,
// and free of faults: valid UTF-8 and finite numbers make the JSON text a faithful key, and leave encoding nothing to
// fail on.
func (s *Spec) interned() (*Spec, error) {
	if s.Shared() {
		return s, nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	key := string(text)
	classes.Lock()
	defer classes.Unlock()
	if known := classes.byKey[key].Value(); known != nil {
		return known, nil
	}
	s.self, s.key = s, key
	p := weak.Make(s)
	classes.byKey[key] = p
	runtime.AddCleanup(s, func(key string) { forget(key, p) }, key)
	return s, nil
}

// forget drops the entry of a class that is gone, unless it has come back meanwhile.
func forget(key string, gone weak.Pointer[Spec]) {
	classes.Lock()
	defer classes.Unlock()
	if classes.byKey[key] == gone {
		delete(classes.byKey, key)
	}
}

// Shared reports whether s is the one copy of all equal specs that ledgers hand out. It is never written to again, so
// the pointer stands for the class, and what is computed for it can be kept.
func (s *Spec) Shared() bool { return s.self == s }

// clone returns a copy in canonical form that shares nothing with s.
func (s *Spec) clone() *Spec {
	c := *s
	c.self, c.key = nil, ""
	c.Devices.Models = sorted(s.Devices.Models)
	c.Spread.Names = sorted(s.Spread.Names)
	c.Start.Volumes = sorted(s.Start.Volumes)
	c.Require = make([]Predicate, len(s.Require))
	for i, p := range s.Require {
		c.Require[i] = p.canonical()
	}
	c.Prefer = make([]Preference, len(s.Prefer))
	for i, p := range s.Prefer {
		c.Prefer[i] = Preference{Predicate: p.canonical(), Weight: p.Weight}
	}
	return &c
}

// sorted returns a sorted copy without repetition.
func sorted(words []string) []string {
	c := slices.Clone(words)
	slices.Sort(c)
	return slices.Compact(c)
}
