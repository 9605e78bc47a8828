package etcdledger

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// sender sends transactions until it knows what has become of them.
type sender struct {
	ctx      context.Context
	client   *clientv3.Client
	mirror   *mirror
	stats    *counters
	timeout  time.Duration
	patience time.Duration
	number   atomic.Uint64
}

// sent is what has become of a transaction.
type sent struct {
	pack *pack
	// Etcd's revision of the commit; 0: it was not applied, or nobody knows.
	at int64
	// Tickets that are to be judged again.
	again []*ticket
}

// send sends a transaction, and again as long as its answer is lost, somebody waits and patience lasts. That is
// safe: a copy that is applied changes what every other copy compares.
func (s *sender) send(b *pack, gaps int) sent {
	number := s.number.Add(1)
	compares, then, otherwise, err := b.transaction(s.mirror.self, number)
	if err != nil {
		return s.fail(b, unavailable(err))
	}
	s.mirror.expect(number)
	defer s.mirror.forget(number)
	began := time.Now()
	for doubt := false; ; doubt = true {
		resp, err := s.try(compares, then, otherwise)
		switch {
		case err == nil && resp.Succeeded:
			return s.commit(b, resp.Header.Revision)
		case err == nil:
			return s.lose(b, resp, number, doubt, gaps)
		case isTooMuch(err) && !doubt:
			return s.divide(b, err)
		case isRefused(err) && !doubt:
			return s.fail(b, unavailable(err))
		}
		s.stats.lostAnswers.Add(1)
		if at := s.mirror.seen(number); at != 0 { // the watch brings what no answer says
			return s.commit(b, at)
		}
		if time.Since(began) > s.patience || s.ctx.Err() != nil || b.idle() || !pause(s.ctx, s.timeout/100) {
			return s.fail(b, unknown(s.reason(err)))
		}
	}
}

// reason returns why no answer came.
func (s *sender) reason(err error) error {
	if s.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}

// pause waits a little and reports whether there is any point in going on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// try sends it once.
func (s *sender) try(compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	s.stats.transactions.Add(1)
	return s.client.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
}

// commit answers all tickets.
func (s *sender) commit(b *pack, at int64) sent {
	s.stats.commits.Add(uint64(len(b.tickets)))
	for _, t := range b.tickets {
		t.answer(orbit.Revision(at), nil)
	}
	return sent{pack: b, at: at}
}

// fail gives all tickets the same answer.
func (s *sender) fail(b *pack, err error) sent {
	for _, t := range b.tickets {
		t.answer(0, err)
	}
	return sent{pack: b}
}

// divide has all tickets of a transaction that is more than the server takes sent alone: none takes another down.
// What is too much alone is the proposer's to divide.
func (s *sender) divide(b *pack, why error) sent {
	if len(b.tickets) == 1 {
		return s.fail(b, invalid("the server takes less than Options.MaxOps and Options.MaxBytes say: %v: divide it, or set them to what the server takes", why))
	}
	for _, t := range b.tickets {
		t.divided()
	}
	return sent{pack: b, again: b.tickets}
}

// lose finds out who was first. It may have been ourselves, if an earlier answer was lost.
func (s *sender) lose(b *pack, resp *clientv3.TxnResponse, number uint64, doubt bool, gaps int) sent {
	newest, changed := newer((*pb.TxnResponse)(resp), b)
	ctx, cancel := context.WithTimeout(s.ctx, s.patience)
	defer cancel()
	g, err := s.mirror.reach(ctx, newest)
	if err != nil {
		if doubt {
			return s.fail(b, unknown(s.reason(err)))
		}
		return s.fail(b, unavailable(s.reason(err)))
	}
	if at := s.mirror.seen(number); at != 0 {
		return s.commit(b, at)
	}
	s.stats.retries.Add(1)
	if doubt && g.gaps != gaps {
		s.askForAgain(b, g.state)
	}
	for _, t := range b.tickets {
		t.returned(newest, changed.meets(t.touched))
	}
	return sent{pack: b, again: b.tickets}
}

// askForAgain resolves a doubt when a part of the history was missed, and with it perhaps our own commit: the state, which
// is newer than that would be, knows proposals by their ids. Those without one stay unknown.
func (s *sender) askForAgain(b *pack, state *orbit.State) {
	for _, t := range b.tickets {
		t.mu.Lock()
		if t.p.ID.IsZero() {
			t.answerLocked(0, unknown(errors.New("the history was lost on the way, and the proposal has no id")))
		} else if at := state.Committed(t.p); at != 0 {
			t.answerLocked(at, nil)
		}
		t.mu.Unlock()
	}
}

// newer returns which of the compared records have changed, and the newest revision that there is, of the log too:
// a mirror that has reached it has seen all that was committed before, whatever a proposal that is judged again
// looks at then.
func newer(resp *pb.TxnResponse, b *pack) (newest int64, changed refs) {
	changed = refs{}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			if kv.ModRevision <= b.pos {
				continue
			}
			newest = max(newest, kv.ModRevision)
			if name, ok := b.keys.parse(string(kv.Key)); ok {
				changed[name] = reads
			}
		}
	}
	return newest, changed
}
