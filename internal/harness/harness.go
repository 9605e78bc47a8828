// Package harness checks rules of something that an importer has written: what ledgertest and navtest stand on.
package harness

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// Rule is one thing that holds of everything that a suite checks. T is the suite's trial: a rule that is being checked.
type Rule[T any] struct {
	// Name is the name of the subtest.
	Name string
	// Lines of docs/scenarios.md and invariants that it covers; empty: none.
	Lines string
	// Text states the rule as a sentence.
	Text string
	// Why says what goes wrong without the rule.
	Why string
	// Check tests the rule. It calls Case.Failf, which ends it, if the rule does not hold.
	Check func(T)
}

// Define makes a rule of its fields, in their order.
func Define[T any](name, lines, text, why string, check func(T)) Rule[T] {
	return Rule[T]{Name: name, Lines: lines, Text: text, Why: why, Check: check}
}

func (r *Rule[T]) header() string {
	s := fmt.Sprintf("rule: %s\nwhy:  %s", r.Text, r.Why)
	if r.Lines != "" {
		s += "\nsee:  SCENARIOS " + r.Lines
	}
	return s
}

// Suite is a list of rules and a way to try one of them.
type Suite[T any] struct {
	// Rules are run in this order.
	Rules []Rule[T]
	// Skip names rules that are left out, each with the reason.
	Skip map[string]string
	// Try checks one rule. It is called with what Run or Check was: T of the subtest, or of the caller.
	Try func(*testing.T, *Rule[T]) *Case
}

// Fault says which name in Skip is no rule.
func (s *Suite[T]) Fault() error {
	for _, name := range slices.Sorted(maps.Keys(s.Skip)) {
		if !slices.ContainsFunc(s.Rules, func(r Rule[T]) bool { return r.Name == name }) {
			return fmt.Errorf("field Skip names %q, which is not a rule", name)
		}
	}
	return nil
}

// Run tries every rule in a subtest of its name.
func (s *Suite[T]) Run(t *testing.T) {
	t.Helper()
	for i := range s.Rules {
		r := &s.Rules[i]
		t.Run(r.Name, func(t *testing.T) {
			if reason, skip := s.Skip[r.Name]; skip {
				t.Skip(reason)
			}
			c := s.Try(t, r)
			t.Logf("%s\n%s", r.header(), strings.Join(c.notes, "\n"))
			switch {
			case c.err != nil:
				t.Errorf("seen: %v", c.err)
			case c.unfit != "":
				t.Skip(c.unfit)
			}
		})
	}
}

// Check tries every rule and returns what is wrong with those that are broken, by name.
func (s *Suite[T]) Check(t *testing.T) map[string]error {
	broken := map[string]error{}
	for i := range s.Rules {
		r := &s.Rules[i]
		if _, skip := s.Skip[r.Name]; skip {
			continue
		}
		if c := s.Try(t, r); c.err != nil {
			broken[r.Name] = fmt.Errorf("%s\nseen: %w", r.header(), c.err)
		}
	}
	return broken
}

// Case is one check under way. It runs in a goroutine of its own, which Failf ends as testing.T.Fatalf would, so that
// checks read like tests, and what never returns cannot stop the suite. Its methods belong to that goroutine.
type Case struct {
	// Where says what is going on; messages begin with it.
	Where string
	// Shown beside the rule.
	notes []string
	// Why what is checked is not fit for the rule; empty: it is.
	unfit string
	err   error
}

// Failed returns a case that has ended with an error before it has begun.
func Failed(err error) *Case { return &Case{err: err} }

// Try runs a check, and gives it up after limit; 0: never.
func Try(limit time.Duration, check func(*Case)) *Case {
	c, done := &Case{}, make(chan struct{})
	go guard.Call(func() error {
		check(c)
		return nil
	}, func(crash error) {
		if crash != nil && c.err == nil && c.unfit == "" { // Failf and Skipf exit the goroutine, too
			c.err = fmt.Errorf("%s%w", c.Where, crash)
		}
		close(done)
	})
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	select {
	case <-done:
		return c
	case <-over:
		return Failed(fmt.Errorf("the case has not ended after %v; a call does not return:\n%s", limit, stacks()))
	}
}

// stacks are what all goroutines are doing, as much of it as one wants to read.
func stacks() []byte {
	text := make([]byte, 16<<10)
	return text[:runtime.Stack(text, true)]
}

// Failf ends the case.
func (c *Case) Failf(format string, args ...any) {
	c.err = fmt.Errorf("%s%w", c.Where, fmt.Errorf(format, args...))
	runtime.Goexit()
}

// Must ends the case if there is an error, with what was being done.
func (c *Case) Must(err error, doing ...string) {
	if err != nil {
		c.Failf("%s%w", strings.Join(append(doing, ""), ": "), err)
	}
}

// Skipf ends a case for which what is checked is not fit.
func (c *Case) Skipf(format string, args ...any) {
	c.unfit = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Notef adds a line to what is shown beside the rule.
func (c *Case) Notef(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Within calls code of an importer, which may panic, exit its goroutine or not return within the limit, and says if it
// did. After an error what f has written must not be read.
func Within(limit time.Duration, what string, f func()) error {
	done := make(chan error, 1)
	go guard.Call(func() error { f(); return nil }, func(crash error) { done <- crash })
	select {
	case crash := <-done:
		if crash != nil {
			return fmt.Errorf("%s: %w", what, crash)
		}
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s has not returned after %v", what, limit)
	}
}

// Hash is a number that depends on the text alone.
func Hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// Rand returns numbers that depend on nothing but the seed, the rule and the number of the world.
func Rand(seed uint64, rule string, world int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, Hash(rule)+uint64(world)))
}
