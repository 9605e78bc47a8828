// Package harness checks that code of an importer keeps a list of rules. Packages ledgertest and navtest are built on
// it.
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

// Rule is a statement that holds of everything that a suite checks. T is the type of the suite's trial, which is one
// rule under check.
type Rule[T any] struct {
	// Name is the name of the subtest.
	Name string
	// Lines are the lines of docs/scenarios.md and the invariants that the rule covers; empty: none.
	Lines string
	// Text states the rule as a sentence.
	Text string
	// Why says what goes wrong without the rule.
	Why string
	// Check tests the rule. If the rule does not hold, it calls Case.Failf, which ends it.
	Check func(T)
}

// Define returns a rule with these fields, in their order.
func Define[T any](name, lines, text, why string, check func(T)) Rule[T] {
	return Rule[T]{Name: name, Lines: lines, Text: text, Why: why, Check: check}
}

func (r *Rule[T]) header() string {
	s := fmt.Sprintf("rule: %s\nwhy:  %s", r.Text, r.Why)
	if r.Lines != "" {
		s += "\nsee:  docs/scenarios.md, line " + r.Lines
	}
	return s
}

// Suite is a list of rules and a way to try one of them.
type Suite[T any] struct {
	// Rules are run in this order.
	Rules []Rule[T]
	// Skip names rules that are left out, each with the reason.
	Skip map[string]string
	// Try checks one rule. Its first argument is the T that Run or Check works with: that of the subtest, or that of
	// the caller.
	Try func(*testing.T, *Rule[T]) *Case
}

// Fault returns an error if a name in Skip is not that of a rule.
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

// Check tries every rule that is not skipped and returns an error for each broken one, by name.
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

// Case is one check under way. It runs in a goroutine of its own, which Failf ends as testing.T.Fatalf would. So checks
// read like tests, and a call that never returns cannot stop the suite. Only that goroutine may call its methods.
type Case struct {
	// Where says what the check is doing; messages begin with it.
	Where string
	// Lines to show beside the rule.
	notes []string
	// The reason why the code under check is not fit for the rule; empty: it is.
	unfit string
	err   error
}

// Failed returns a case that has ended with an error before it began.
func Failed(err error) *Case { return &Case{err: err} }

// Try runs a check, and abandons it after limit; 0: never.
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

// stacks returns the stacks of all goroutines, cut at 16 KiB.
func stacks() []byte {
	text := make([]byte, 16<<10)
	return text[:runtime.Stack(text, true)]
}

// Failf ends the case with an error.
func (c *Case) Failf(format string, args ...any) {
	c.err = fmt.Errorf("%s%w", c.Where, fmt.Errorf(format, args...))
	runtime.Goexit()
}

// Must ends the case if err is not nil. The texts in doing say what failed.
func (c *Case) Must(err error, doing ...string) {
	if err != nil {
		c.Failf("%s%w", strings.Join(append(doing, ""), ": "), err)
	}
}

// Skipf ends the case because the code under check is not fit for the rule.
func (c *Case) Skipf(format string, args ...any) {
	c.unfit = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Notef adds a line to those that are shown beside the rule.
func (c *Case) Notef(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Within calls code of an importer. It returns an error if the code panics, exits its goroutine or does not return
// within the limit. After an error, nothing that f has written may be read, because f may still run.
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

// Hash returns a number that depends on the text alone.
func Hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// Rand returns a source of random numbers that depend on the seed, the rule and the number of the world alone.
func Rand(seed uint64, rule string, world int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, Hash(rule)+uint64(world)))
}
