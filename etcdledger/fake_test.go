package etcdledger

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// store is the part of etcd that a ledger uses: keys with versions, transactions with compares of revisions, the
// server's checks of size and of duplicate keys, ranges at a revision, compaction, and a log that watches read.
type store struct {
	maxOps, maxBytes int

	// Guards what follows.
	mu        sync.Mutex
	rev       int64
	compacted int64
	keys      map[string][]keyVersion
	// All events, those of one revision together.
	log []happening
	// Closed by the next revision.
	changed chan struct{}
	// The most that was ever sent in one request, and how many requests are on their way.
	mostOps, mostBytes, outstanding int
}

// keyVersion is the value of a key from a revision on; nil: deleted.
type keyVersion struct {
	at int64
	kv *mvccpb.KeyValue
}

// happening is all events of one revision.
type happening struct {
	at     int64
	when   time.Time
	events []*clientv3.Event
}

func newStore() *store {
	return &store{maxOps: defaultMaxOps, maxBytes: defaultMaxBytes, rev: 1, keys: map[string][]keyVersion{}, changed: make(chan struct{})}
}

// get returns the version of a key at a revision. The lock must be held.
func (s *store) get(key string, at int64) *mvccpb.KeyValue {
	versions := s.keys[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].at <= at {
			return versions[i].kv
		}
	}
	return nil
}

// rangeOf answers a range request. The lock must be held.
func (s *store) rangeOf(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	at := r.Revision
	switch {
	case at == 0:
		at = s.rev
	case at > s.rev:
		return nil, rpctypes.ErrGRPCFutureRev
	case at < s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	}
	out := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: s.rev}}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if !inside([]byte(key), r.Key, r.RangeEnd) {
			continue
		}
		kv := s.get(key, at)
		if kv == nil {
			continue
		}
		if out.Count++; r.Limit > 0 && out.Count > r.Limit {
			out.More = true
			continue
		}
		if r.KeysOnly {
			kv = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version}
		}
		out.Kvs = append(out.Kvs, kv)
	}
	return out, nil
}

// inside reports whether a key is in a range; without an end the range is one key.
func inside(key, from, end []byte) bool {
	if len(end) == 0 {
		return bytes.Equal(key, from)
	}
	return bytes.Compare(key, from) >= 0 && bytes.Compare(key, end) < 0
}

// check returns the error with which the server refuses a transaction.
func (s *store) check(r *pb.TxnRequest) error {
	ops, size := max(len(r.Compare), len(r.Success), len(r.Failure)), proto.Size(r)
	s.mostOps, s.mostBytes = max(s.mostOps, ops), max(s.mostBytes, size)
	if ops > s.maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	if size > s.maxBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		written := map[string]bool{}
		for _, op := range branch {
			key := op.GetRequestPut().GetKey()
			if del := op.GetRequestDeleteRange(); del != nil {
				key = del.Key
			}
			if key != nil && written[string(key)] {
				return rpctypes.ErrGRPCDuplicateKey
			}
			written[string(key)] = true
		}
	}
	return nil
}

// holds evaluates a compare. The lock must be held.
func (s *store) holds(c *pb.Compare) bool {
	kv := s.get(string(c.Key), s.rev)
	var got, want int64
	switch c.Target {
	case pb.Compare_MOD:
		got, want = kv.GetModRevision(), c.GetModRevision()
	case pb.Compare_CREATE:
		got, want = kv.GetCreateRevision(), c.GetCreateRevision()
	default:
		panic("the fake does not compare that")
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return got == want
	case pb.Compare_LESS:
		return got < want
	case pb.Compare_GREATER:
		return got > want
	}
	return got != want
}

// txn applies a transaction.
func (s *store) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(r); err != nil {
		return nil, err
	}
	out, branch := &pb.TxnResponse{Succeeded: true}, r.Success
	for _, c := range r.Compare {
		out.Succeeded = out.Succeeded && s.holds(c)
	}
	if !out.Succeeded {
		branch = r.Failure
	}
	var events []*clientv3.Event
	for _, op := range branch {
		switch {
		case op.GetRequestRange() != nil:
			got, err := s.rangeOf(op.GetRequestRange())
			if err != nil {
				return nil, err
			}
			out.Responses = append(out.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: got}})
			continue
		case op.GetRequestPut() != nil:
			events = append(events, s.put(op.GetRequestPut()))
		case op.GetRequestDeleteRange() != nil:
			gone := s.del(op.GetRequestDeleteRange())
			events = append(events, gone...)
			out.Responses = append(out.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: int64(len(gone))},
			}})
			continue
		}
		out.Responses = append(out.Responses, &pb.ResponseOp{})
	}
	s.happened(events)
	out.Header = &pb.ResponseHeader{Revision: s.rev}
	return out, nil
}

// put writes a key at the next revision. The lock must be held.
func (s *store) put(r *pb.PutRequest) *clientv3.Event {
	key := string(r.Key)
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, ModRevision: s.rev + 1, CreateRevision: s.rev + 1, Version: 1}
	if was := s.get(key, s.rev); was != nil {
		kv.CreateRevision, kv.Version = was.CreateRevision, was.Version+1
	}
	s.keys[key] = append(s.keys[key], keyVersion{s.rev + 1, kv})
	return &clientv3.Event{Type: mvccpb.Event_PUT, Kv: kv}
}

// del deletes a range at the next revision. The lock must be held.
func (s *store) del(r *pb.DeleteRangeRequest) (events []*clientv3.Event) {
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if inside([]byte(key), r.Key, r.RangeEnd) && s.get(key, s.rev) != nil {
			s.keys[key] = append(s.keys[key], keyVersion{s.rev + 1, nil})
			events = append(events, &clientv3.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: s.rev + 1}})
		}
	}
	return events
}

// happened ends a revision if anything was written. The lock must be held.
func (s *store) happened(events []*clientv3.Event) {
	if len(events) == 0 {
		return
	}
	s.rev++
	s.log = append(s.log, happening{s.rev, time.Now(), events})
	close(s.changed)
	s.changed = make(chan struct{})
}

// compact drops all versions before the present revision.
func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.rev
}

// write is a write by another client, such as etcdctl.
func (s *store) write(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happened([]*clientv3.Event{s.put(&pb.PutRequest{Key: []byte(key), Value: []byte(value)})})
}

// erase is a deletion by another client.
func (s *store) erase(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happened(s.del(&pb.DeleteRangeRequest{Key: []byte(key)}))
}

// value returns the present value of a key, "" if there is none.
func (s *store) value(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.get(key, s.rev).GetValue())
}

// present returns all present keys.
func (s *store) present() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		if s.get(key, s.rev) != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// busy returns the number of requests and watches under way.
func (s *store) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outstanding
}

// begin counts a request or a watch; the function it returns ends it.
func (s *store) begin() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outstanding++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outstanding--
	}
}

// what can become of a request.
type fate int

const (
	// Nothing.
	_ fate = iota
	// The request is lost, and the client is told so at once.
	lostBefore
	// It is applied, and the answer is lost.
	lostAfter
	// The client is told that it is lost; it is applied some time later all the same.
	late
	// It takes some time to get there.
	slow
	// It is applied, and the answer takes some time.
	slowAnswer
	// Nothing comes back until the client gives up. It is applied.
	silent
)

// fault is the fate of one request, or of one response of a watch.
type fault struct {
	fate fate
	by   time.Duration
}

// plan has the fates of the requests of one client, in order. When it is at its end all requests are answered at once.
type plan struct {
	mu                  sync.Mutex
	txns, reads, events []fault
	// So much behind is the watch, always.
	lag time.Duration
	// As long as it is not nil: the watch brings nothing until it is closed.
	held chan struct{}
	// A hook before the watch brings something.
	onEvents func()
	txnsSent int
}

// lags sets how far the watch is behind from now on.
func (p *plan) lags(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lag = by
}

// next takes the next fate from a list.
func (p *plan) next(list *[]fault) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if list == &p.txns {
		p.txnsSent++
	}
	if len(*list) == 0 {
		return fault{}
	}
	f := (*list)[0]
	*list = (*list)[1:]
	return f
}

// hold stops the deliveries of the watch until release.
func (p *plan) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

func (p *plan) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.held)
	p.held = nil
}

// begin replaces the fates by those of another plan.
func (p *plan) begin(from *plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.txns, p.reads, p.events, p.lag = from.txns, from.reads, from.events, from.lag
}

// heal ends all faults.
func (p *plan) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.txns, p.reads, p.events, p.lag = nil, nil, nil, 0
}

func (p *plan) sendsNext(f ...fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.txns = append(p.txns, f...)
}

// link is the connection of one client.
type link struct {
	pb.KVClient
	store *store
	plan  *plan
}

// client returns a client of the store whose requests have the fates of a plan.
func (s *store) client(p *plan) *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background())
	l := &link{store: s, plan: p}
	c.KV = clientv3.NewKVFromKVClient(l, c)
	c.Watcher = l
	return c
}

var errGone = status.Error(codes.Unavailable, "the connection is gone")

// sleep waits, or returns an error if the client gives up before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Range implements pb.KVClient.
func (l *link) Range(ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	defer l.store.begin()()
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	f := l.plan.next(&l.plan.reads)
	switch f.fate {
	case lostBefore, lostAfter, late:
		return nil, errGone
	case silent:
		return nil, sleep(ctx, time.Hour)
	case slow:
		if err := sleep(ctx, f.by); err != nil {
			return nil, err
		}
	}
	l.store.mu.Lock()
	out, err := l.store.rangeOf(r)
	l.store.mu.Unlock()
	if f.fate == slowAnswer {
		if err := sleep(ctx, f.by); err != nil {
			return nil, err
		}
	}
	return out, err
}

// Txn implements pb.KVClient.
func (l *link) Txn(ctx context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	defer l.store.begin()()
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	f := l.plan.next(&l.plan.txns)
	switch f.fate {
	case lostBefore:
		return nil, errGone
	case late:
		time.AfterFunc(f.by, func() { _, _ = l.store.txn(r) })
		return nil, errGone
	case slow:
		if err := sleep(ctx, f.by); err != nil {
			return nil, err
		}
	}
	out, err := l.store.txn(r)
	switch f.fate {
	case lostAfter:
		return nil, errGone
	case silent:
		return nil, sleep(ctx, time.Hour)
	case slowAnswer:
		if err := sleep(ctx, f.by); err != nil {
			return nil, err
		}
	}
	return out, err
}

// Put implements pb.KVClient.
func (l *link) Put(_ context.Context, r *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	l.store.write(string(r.Key), string(r.Value))
	return &pb.PutResponse{}, nil
}
