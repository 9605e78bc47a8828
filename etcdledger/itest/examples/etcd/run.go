package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
	"github.com/orbitsched/orbit/internal/program"
)

// teams are the processes, by the name of their engine.
var teams = [2]string{"left", "right"}

// show is the state of a run.
type show struct {
	options
	site    *site
	out     io.Writer
	answers audit.Answers
	began   time.Time

	crews [2]*crew.Crew
	// before has the sums of the processes that have been killed.
	before [2]crew.Tally
	done   []string // what has been killed, in order
}

// run places all capsules, kills processes meanwhile, and prints what came of it.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	s := &show{options: o, out: out, began: time.Now()}
	fmt.Fprintln(out, program.Opening(source))
	if s.site, err = openSite(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.site.close()) }()
	s.say("etcd at %v, %s", s.site.endpoints, map[bool]string{true: "its own", false: "an existing one"}[s.site.own != nil])
	if err := s.site.submit(ctx, o); err != nil {
		return err
	}
	s.say("%d nodes joined, %d capsules submitted", o.nodes, o.capsules)
	for i := range s.crews {
		if err := s.start(ctx, i); err != nil {
			return err
		}
		defer func() { _ = s.crews[i].Kill() }()
	}
	if err := s.placeAll(ctx); err != nil {
		return err
	}
	s.settle()
	for _, c := range s.crews {
		if err := c.Stop(10 * time.Second); err != nil {
			return err
		}
	}
	return s.report(ctx)
}

// say prints a line with the time since the start.
func (s *show) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%6.2f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts a process of navigators and waits until it has opened its ledger.
func (s *show) start(ctx context.Context, i int) (err error) {
	s.crews[i], err = crew.Start(crew.Config{
		Endpoints: s.site.endpoints, Prefix: s.site.prefix, MaxPlan: 100, Timeout: 2 * time.Second,
		Engines: []crew.Engine{{Name: teams[i], Modules: []string{"web"}}},
	}, &s.answers)
	if err != nil {
		return err
	}
	select {
	case <-s.crews[i].Ready():
		return nil
	case <-s.crews[i].Done():
		return s.crews[i].Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stuckAfter is after how long without a placement the run fails.
const stuckAfter = time.Minute

// placeAll waits until all capsules are placed. Meanwhile it kills a process or a member each time after the same number of
// placements.
func (s *show) placeAll(ctx context.Context) error {
	last, moved, said := 0, time.Now(), time.Now()
	for {
		state, err := s.site.ledger.Snapshot(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			placed := s.capsules - state.PendingCount()
			if placed > last {
				last, moved = placed, time.Now()
			}
			if time.Since(said) > 250*time.Millisecond || placed == s.capsules {
				s.say("%d of %d placed: %s by acknowledged commits", placed, s.capsules, s.shares())
				said = time.Now()
			}
			if n := len(s.done); n < s.kills && placed*(s.kills+1) >= s.capsules*(n+1) {
				if err := s.kill(ctx, n); err != nil {
					return err
				}
				moved = time.Now()
			} else if placed == s.capsules {
				return nil
			}
		}
		if time.Since(moved) > stuckAfter {
			return fmt.Errorf("nothing has been placed for %v: %d of %d are", stuckAfter, last, s.capsules)
		}
		for _, c := range s.crews {
			if err := c.Err(); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// settle waits until the processes have reported their last rounds, which they do some time after the commits.
func (s *show) settle() {
	for before := -1; before != s.tally(0).Rounds+s.tally(1).Rounds; time.Sleep(500 * time.Millisecond) {
		before = s.tally(0).Rounds + s.tally(1).Rounds
	}
}

// shares returns how many placements each process has committed, in words.
func (s *show) shares() string {
	return fmt.Sprintf("%s %d, %s %d", teams[0], s.tally(0).Committed, teams[1], s.tally(1).Committed)
}

// tally returns the sums of a process and of its predecessors.
func (s *show) tally(i int) crew.Tally {
	t := s.before[i]
	t.Add(s.crews[i].Tally())
	return t
}

// kill kills a process of navigators without warning and starts another one in its place. If the etcd is the program's own,
// every second kill hits a member of it instead.
func (s *show) kill(ctx context.Context, n int) error {
	if s.site.own != nil && n%2 == 1 {
		return s.killMember(ctx)
	}
	i := 1 - n/2%2
	if err := s.crews[i].Kill(); err != nil {
		return err
	}
	s.done = append(s.done, teams[i])
	s.say("killed the process %q in the middle of its work", teams[i])
	s.before[i].Add(s.crews[i].Tally())
	if err := s.start(ctx, i); err != nil {
		return err
	}
	s.say("started another %q, which has read the ledger", teams[i])
	return nil
}

// killMember kills the leader of the etcd and starts it again from its data.
func (s *show) killMember(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	leader, err := s.site.own.Leader(ctx)
	if err != nil {
		return err
	}
	if err := s.site.own.Kill(leader); err != nil {
		return err
	}
	s.done = append(s.done, "etcd")
	s.say("killed member %d of the etcd, its leader", leader)
	if err := s.site.own.Restart(ctx, leader); err != nil {
		return err
	}
	s.say("started member %d again from its data", leader)
	return nil
}

// report compares three accounts and prints the result: all versions of the ledger's log in etcd, the records as a new
// process reads them, and the answers that the processes have got.
func (s *show) report(ctx context.Context) error {
	var book audit.Book
	if err := book.Read(ctx, s.site.client, s.site.prefix); err != nil {
		return err
	}
	fresh, err := etcdledger.Open(ctx, s.site.client, etcdledger.Options{Prefix: s.site.prefix})
	if err != nil {
		return err
	}
	defer func() { _ = fresh.Close() }()
	state, err := fresh.Snapshot(ctx)
	if err != nil {
		return err
	}
	lost := book.Judge(&s.answers) + book.Compare(state)
	verified := state.Verify()
	printTable(s, state, &book)
	verdict := "ok"
	if verified != nil || len(book.Faults) > 0 {
		verdict = "failed"
	}
	fmt.Fprintf(s.out, "etcd: placed %d of %d, doubled %d, lost %d, kills %d, verify: %s\n",
		state.CapsuleCount()-state.PendingCount(), s.capsules, book.Doubled, lost, len(s.done), verdict)
	for _, fault := range book.Faults {
		verified = errors.Join(verified, errors.New(fault))
	}
	return verified
}

// of returns the number of placed capsules that are assigned to an owner.
func of(state *orbit.State, owner string) (n int) {
	for c := range state.Capsules() {
		if c.Owner() == owner && c.Placed() {
			n++
		}
	}
	return n
}
