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

// txnOutcome is what has become of a transaction.
type txnOutcome struct {
	pack *pack
	// Etcd's revision of the commit; 0: it was not applied, or that is unknown.
	at int64
	// Requests that are to be judged again.
	again []*request
}

// send sends a transaction, and again as long as its answer is lost, a request waits for it and patience lasts. That is
// safe: a copy that is applied changes what every other copy compares.
func (s *sender) send(b *pack, gaps int) txnOutcome {
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

// commit answers all requests.
func (s *sender) commit(b *pack, at int64) txnOutcome {
	s.stats.commits.Add(uint64(len(b.requests)))
	for _, t := range b.requests {
		t.answer(orbit.Revision(at), nil)
	}
	return txnOutcome{pack: b, at: at}
}

// fail gives all requests the same answer.
func (s *sender) fail(b *pack, err error) txnOutcome {
	for _, t := range b.requests {
		t.answer(0, err)
	}
	return txnOutcome{pack: b}
}

// divide has all requests of a transaction that is more than the server takes sent alone: none takes another down.
// What is too much alone is the proposer's to divide.
func (s *sender) divide(b *pack, why error) txnOutcome {
	if len(b.requests) == 1 {
		return s.fail(b, invalid("the server takes less than Options.MaxOps and Options.MaxBytes say: %v: divide it, or set them to what the server takes", why))
	}
	for _, t := range b.requests {
		t.sendAlone()
	}
	return txnOutcome{pack: b, again: b.requests}
}

// lose finds out which commit was first. It may have been this very one, if an earlier answer was lost.
func (s *sender) lose(b *pack, resp *clientv3.TxnResponse, number uint64, doubt bool, gaps int) txnOutcome {
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
	for _, t := range b.requests {
		t.returned(newest, changed.meets(t.accesses))
	}
	return txnOutcome{pack: b, again: b.requests}
}

// askForAgain resolves a doubt when a part of the history was missed, and with it perhaps our own commit: the state, which
// is newer than that would be, knows proposals by their ids. Those without one stay unknown.
func (s *sender) askForAgain(b *pack, state *orbit.State) {
	for _, t := range b.requests {
		if t.p.ID.IsZero() {
			t.answer(0, unknown(errors.New("the history was lost on the way, and the proposal has no id")))
		} else if at := state.Committed(t.p); at != 0 {
			t.answer(at, nil)
		}
	}
}

// newer returns which of the compared records have changed, and the newest revision that there is, of the log too:
// a mirror that has reached it has seen all that was committed before, whatever a proposal that is judged again
// looks at then.
func newer(resp *pb.TxnResponse, b *pack) (newest int64, changed accessSet) {
	changed = accessSet{}
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
