package etcdledger

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// sender sends each transaction until its outcome is known or patience is over.
type sender struct {
	ctx      context.Context
	client   *clientv3.Client
	mirror   *mirror
	stats    *counters
	timeout  time.Duration
	patience time.Duration
	number   atomic.Uint64
}

// txnOutcome is the outcome of a transaction.
type txnOutcome struct {
	pack *pack
	// at is etcd's revision of the commit; 0: the transaction was not applied, or that is unknown.
	at int64
	// again are the requests to be judged again.
	again []*request
}

// send sends a transaction. If the answer is lost, it sends the same transaction again, as long as a request waits for
// it and patience lasts. At most one copy is applied, because that copy changes records that the other copies compare.
// The caller passes gaps as the mirror had it when the proposals were judged.
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
		if at := s.mirror.seen(number); at != 0 { // the answer was lost, but the watch has delivered the commit
			return s.commit(b, at)
		}
		if time.Since(began) > s.patience || s.ctx.Err() != nil || b.idle() || !send.Pause(s.ctx, s.timeout/100) {
			return s.fail(b, unknown(s.reason(err)))
		}
	}
}

// reason returns ErrClosed if the ledger has been closed, otherwise the error itself.
func (s *sender) reason(err error) error {
	if s.ctx.Err() != nil {
		return ErrClosed
	}
	return err
}

// try sends the transaction once.
func (s *sender) try(compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
	defer cancel()
	s.stats.transactions.Add(1)
	return s.client.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
}

// commit answers all requests of a transaction with its revision.
func (s *sender) commit(b *pack, at int64) txnOutcome {
	s.stats.commits.Add(uint64(len(b.requests)))
	for _, t := range b.requests {
		t.answer(orbit.Revision(at), nil)
	}
	return txnOutcome{pack: b, at: at}
}

// fail answers all requests of a transaction with an error.
func (s *sender) fail(b *pack, err error) txnOutcome {
	for _, t := range b.requests {
		t.answer(0, err)
	}
	return txnOutcome{pack: b}
}

// divide handles a transaction that the server has refused as too large: its requests are sent again, each in a
// transaction of its own. A single request that is too large is refused, and its proposer has to divide the proposal.
func (s *sender) divide(b *pack, why error) txnOutcome {
	if len(b.requests) == 1 {
		return s.fail(b, invalid("the server accepts less than Options.MaxOps and Options.MaxBytes say: %v: divide the proposal, or set them to what the server accepts", why))
	}
	for _, t := range b.requests {
		t.sendAlone()
	}
	return txnOutcome{pack: b, again: b.requests}
}

// lose handles a transaction whose compares have failed, because a compared key has been written. If an earlier answer
// was lost (doubt), the writer may be an earlier copy of this transaction, so lose looks for that copy in the mirror.
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

// askForAgain looks up which requests an earlier copy of the transaction has committed, where the mirror has missed a
// part of the history and with it perhaps that commit. The state knows which proposals with an id are committed, and
// askForAgain answers their requests. A proposal without an id cannot be found, so its outcome is unknown.
func (s *sender) askForAgain(b *pack, state *orbit.State) {
	for _, t := range b.requests {
		if t.p.ID.IsZero() {
			t.answer(0, unknown(errors.New("a part of the history was missed, and the proposal has no id to find it by; give proposals an ID")))
		} else if at := state.Committed(t.p); at != 0 {
			t.answer(at, nil)
		}
	}
}

// newer returns the compared records that have changed, and the newest revision among these records and the log. The
// mirror must reach that revision before a proposal of the pack is judged again. The log is included because a proposal
// that is judged again may read other records than before.
func newer(resp *pb.TxnResponse, b *pack) (newest int64, changed accessSet) {
	changed = accessSet{}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			if kv.ModRevision <= b.pos {
				continue
			}
			newest = max(newest, kv.ModRevision)
			name, ok := b.keys.parse(string(kv.Key))
			if string(kv.Key) == b.keys.log() {
				name, ok = ref{kind: kindLog}, true
			}
			if ok {
				changed[name] = puts
			}
		}
	}
	return newest, changed
}
