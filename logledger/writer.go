package logledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// writer is what the goroutine of [Ledger.run] knows. No other goroutine uses it.
type writer struct {
	// index is the index of the newest entry that is applied, number counts the entries that this ledger has tried to append.
	index  Index
	number uint64
	// encoding has the changes of the open group that are encoded already, all made after the same revision; nil: none.
	encoding *entryWriter
	// most is how many runs the next entry may have, because more made one that was too large; 0: any number.
	most int
	// took is how long the last append took.
	took time.Duration
	// retry is when to do next what has failed; zero: nothing has.
	retry time.Time
	// backoff is how long the last wait after a failure was.
	backoff time.Duration
	// outage is what OnError has been told of a store that does not answer. Any goroutine may read it, for Health.
	outage rate.Outage
	combiner
	checkpointer
}

// run does all work in the background until the ledger is closed. It is the only goroutine that appends to the log, and that
// applies what others have appended.
func (l *Ledger) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		news := false
		select {
		case <-l.arrived:
		case <-l.asked:
			news = true
		case <-l.log.Changed():
			news = true
		case <-timer.C:
			news = !l.w.retry.IsZero() && !time.Now().Before(l.w.retry)
		case result := <-l.wanted:
			l.w.next = append(l.w.next, result)
		case result := <-l.w.results:
			l.endCheckpoint(result)
		case <-l.closing:
			l.finish()
			return
		}
		if news {
			l.catchUp()
		}
		again := l.advance()
		if r := l.w.retry; !r.IsZero() && (again.IsZero() || r.Before(again)) {
			again = r
		}
		if again.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(again))
		}
		l.considerCheckpoint()
	}
}

// advance appends groups for as long as there are any and nothing has to be waited for. Again is when it has to be called
// again although nothing has happened; zero: never.
func (l *Ledger) advance() (again time.Time) {
	for {
		work, failed := l.work()
		switch {
		case errors.Is(failed, ErrFailed):
			l.w.retry = time.Time{}
			return time.Time{}
		case failed != nil:
			if time.Now().Before(l.w.retry) || !l.commit(true) {
				return time.Time{}
			}
		case !work && len(l.w.posted) > 0:
			return l.w.patient
		case !work:
			return time.Time{}
		case l.shouldPost() && !l.w.overdue():
			if len(l.w.posted) == mostPosts {
				return l.w.patient
			}
			if !l.post() {
				l.commit(false)
			}
		case l.gathers():
			return l.w.gather
		default:
			l.commit(false)
		}
	}
}

// work reports whether there is a group to be appended. If proposals have arrived of a batch that is not complete, it
// encodes what they have changed meanwhile.
func (l *Ledger) work() (due bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.trouble != nil:
		return false, l.trouble
	case l.w.forOthers(l.self), l.w.overdue():
		return true, nil
	case len(l.open.runs) == 0:
		return false, nil
	case l.due.Load():
		return true, nil
	}
	if changes := l.open.changes; !l.stale {
		l.mu.Unlock()
		l.encode(changes)
		l.mu.Lock()
	}
	return l.due.Load() && len(l.open.runs) > 0, nil
}

// encode encodes those changes of the open group that are not encoded yet.
func (l *Ledger) encode(changes []orbit.Change) {
	if l.w.encoding == nil && len(changes) > 0 {
		l.w.encoding = newEntryWriter(changes[0].Revision - 1)
	}
	if w := l.w.encoding; w != nil {
		w.add(changes[w.n:])
	}
}

// attempt is a group on its way into the log.
type attempt struct {
	group *group
	entry Entry
	// state is the state after the entry.
	state *orbit.State
	data  []byte
	// settled are the posts that the entry settles.
	settled []PostID
}

// commit judges what has to be judged again and appends the open group, with the posts of others, as one entry. It reports
// whether it was worth it: something was committed or answered. With probe set, it appends an entry even if that has no
// changes, to find out whether the log works.
func (l *Ledger) commit(probe bool) bool {
	l.due.Store(false)
	a := l.prepare()
	if len(a.entry.Changes) == 0 && len(a.settled) == 0 && !probe {
		return l.refuse(a.group)
	}
	l.w.number++
	a.entry.Writer, a.entry.Number, a.entry.Next = l.self, l.w.number, l.w.handOn(l.self, a.entry.Settled)
	var err error
	if a.data, err = l.encoded(a); errors.Is(err, errTooLarge) && l.divide(a) {
		return true
	} else if err != nil {
		l.give(a, err)
		return true
	}
	start := time.Now()
	posts, err := l.log.Append(l.life, Append{Index: l.w.index + 1, Data: a.data, Settled: a.settled})
	l.w.took = time.Since(start)
	switch {
	case err == nil:
		l.committed(a, posts)
	case errors.Is(err, ErrTaken):
		l.lost(a)
	default:
		return l.recover(a, err)
	}
	return true
}

// prepare takes the open group, judged on the newest state after the posts of others.
func (l *Ledger) prepare() *attempt {
	a := &attempt{}
	posts := l.w.readPosts(l.self)
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := l.takeMost()
	if l.stale || len(posts) > 0 {
		a.entry.Settled = l.rejudge(posts)
	}
	a.group, a.entry.Changes = l.open, l.open.changes
	for _, id := range l.w.withdrawn(l.self) {
		a.entry.Settled = append(a.entry.Settled, Settlement{Post: id})
	}
	for _, s := range a.entry.Settled {
		a.settled = append(a.settled, s.Post)
	}
	for _, p := range l.w.posts {
		if l.w.gone.set[p.PostID] && !slices.Contains(a.settled, p.PostID) { // it has come again
			a.settled = append(a.settled, p.PostID)
		}
	}
	l.open, l.stale = &group{runs: rest}, len(posts)+len(rest) > 0
	a.state, _ = l.judge.Snapshot(context.Background()) // cannot fail
	return a
}

// rejudge judges the posts of others and then the open group on the state that is in the log. It answers the refusals at
// the front of the group that rest on nothing but this state, if that is new enough. What comes behind a proposal that is kept
// is kept, too: it may be the same proposal, sent again. It requires mu.
func (l *Ledger) rejudge(posts []judgedPost) []Settlement {
	l.rebase()
	l.w.encoding = nil
	settled := l.judgePosts(posts)
	kept := l.open.runs[:0]
	for _, r := range l.open.runs {
		l.judgeRun(l.open, r)
		isFront := len(kept) == 0 && len(l.open.changes) == 0 && !r.posted && len(l.w.orphans) == 0
		if isFront && r.floor != 0 && l.w.index+1 >= r.floor {
			close(r.done)
		} else {
			kept = append(kept, r)
		}
	}
	clear(l.open.runs[len(kept):])
	l.open.runs = kept
	l.stale = false
	return settled
}

// rebase takes the judge back to the state that is in the log. It requires mu.
func (l *Ledger) rebase() {
	l.judge.Reset(l.shown.Load().state)
	l.open.changes = nil
}

// encoded returns the bytes of an entry.
func (l *Ledger) encoded(a *attempt) ([]byte, error) {
	if l.w.encoding == nil {
		l.w.encoding = newEntryWriter(l.shown.Load().state.Revision())
	}
	w := l.w.encoding
	l.w.encoding = nil
	w.add(a.entry.Changes[w.n:])
	if len(w.buf) > l.mostChanges {
		return nil, errTooLarge
	}
	return w.entry(&a.entry)
}

// takeMost takes those runs out of the open group that are too many for the next entry, and returns them. It requires mu.
func (l *Ledger) takeMost() (rest []*run) {
	if n := l.w.most; n == 0 || len(l.open.runs) <= n {
		l.w.most = 0
		return nil
	}
	rest = slices.Clone(l.open.runs[l.w.most:])
	l.open.runs = l.open.runs[:l.w.most:l.w.most]
	l.stale = true
	l.due.Store(true)
	return rest
}

// divide puts a group back whose entry is too large, so that the next entry has less: no posts of others, which append them by
// themselves then, or half of the runs. It reports false if the group has neither.
func (l *Ledger) divide(a *attempt) bool {
	forOthers := slices.ContainsFunc(a.entry.Settled, func(s Settlement) bool { return s.Post.Writer != l.self })
	switch n := len(a.group.runs); {
	case forOthers:
		l.w.posts = nil
	case n > 1:
		l.w.most = n / 2
	default:
		return false
	}
	l.putBack(a.group)
	return true
}

// committed shows the state after an entry that is in the log, and answers the proposals in it.
func (l *Ledger) committed(a *attempt, posts []Post) {
	defer l.w.outage.Back(l.options.OnError) // when mu is free again
	l.w.index++
	l.w.retry, l.w.backoff = time.Time{}, 0
	l.w.appended(&a.entry, posts)
	l.stats.entries.Add(1)
	l.stats.changes.Add(int64(len(a.entry.Changes)))
	l.count(l.w.index, &a.entry)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown.Store(&position{l.w.index, a.state})
	l.trouble = nil
	l.w.forget()
	for _, r := range a.group.runs {
		close(r.done)
	}
	l.wake()
}

// lost puts a group back in front of the open one, because another ledger has taken its index.
func (l *Ledger) lost(a *attempt) {
	l.stats.lost.Add(1)
	l.putBack(a.group)
	l.w.patient = time.Now().Add(max(leastPatience, 4*l.w.took))
	l.catchUp()
}

// putBack makes the open group begin with another one, to be judged again.
func (l *Ledger) putBack(g *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.runs = append(g.runs, l.open.runs...)
	l.stale = true
	l.rebase()
	l.w.encoding = nil
	if len(l.open.runs) > 0 {
		l.due.Store(true)
	}
}

// refuse answers a group that changes nothing. A refusal is final if it rests on a state that is not older than the call:
// so the group is judged again once all that was in the log after the call has been applied. It reports whether it could
// find out.
func (l *Ledger) refuse(g *group) bool {
	if len(g.runs) == 0 {
		return true
	}
	tail, err := l.log.Tail(l.life)
	if err != nil {
		return l.recover(&attempt{group: g}, unavailable(err))
	}
	for _, r := range g.runs {
		r.floor = max(r.floor, tail+1)
	}
	l.putBack(g)
	if tail > l.w.index {
		l.catchUp()
	}
	return true
}

// finish appends what was proposed before Close, if that is possible within a second, and ends all other work.
func (l *Ledger) finish() {
	for l.life.Err() == nil {
		l.mu.Lock()
		more := len(l.open.runs) > 0 && l.trouble == nil
		l.mu.Unlock()
		if !more {
			break
		}
		l.commit(false)
	}
	l.kill()
	l.endCheckpoints()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble == nil {
		l.trouble = unavailable(ErrClosed)
	}
	l.failOpen(ErrClosed)
	l.wake()
}
