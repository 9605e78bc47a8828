package logledger

import (
	"bytes"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file has how ledgers in several processes take turns. A plain race for the next index starves who is further away
// from the store. So while a log is in use, it is the turn of one ledger to append: the others post their proposals, which
// needs no race, and that ledger judges the posts that wait, oldest first, before its own proposals, in one entry. (Flat
// combining does the same with the threads of one machine: Hendler et al., SPAA 2010.)
//
// The turn is that of the ledger that has appended the newest entry, unless the entry hands it on. After some entries it goes
// to the next ledger, in the order of ids, of those that have posted about as often: their way to the store is about as
// short. A ledger that is dead, or has nothing to do, holds nobody up for long: who has posted and is not answered in time
// appends by itself, with the posts of all, and has the turn then. If nobody has appended for a while, there is no turn, and
// whoever has something to append does.
//
// No post is passed by more than two entries of each other ledger: an append returns the posts that wait, and the next entry
// of the same ledger has them. The ledger that appends waits a moment for the posts of those whose posts it has just settled,
// so that these have their proposals in each entry, as it has itself.

// combiner is what a writer knows about turns and posts.
type combiner struct {
	// turn is the ledger whose turn it is, since newestAt, when the newest entry was applied.
	turn     WriterID
	newestAt time.Time
	// posts are the posts that wait.
	posts []Post
	// posted are the posts of this ledger that are not settled, oldest first. This ledger appends by itself if one is not
	// settled at patient.
	posted  []*posted
	patient time.Time
	// orphans are the posts of this ledger whose callers have been answered with an error. The next entry of this ledger
	// withdraws them; until then it refuses nothing, because another ledger may still commit what is in them.
	orphans []PostID
	// gone are the last posts that an entry has settled or withdrawn. A post that comes a second time, or late, is known by it.
	gone recent
	// postNumber counts the posts of this ledger.
	postNumber uint64
	// expected are the ledgers whose posts were settled by the last entry, and which may post again: until gather.
	expected map[WriterID]bool
	gather   time.Time
	// combined is how many entries this ledger has appended in its turn that have settled posts, shares is how many of them
	// had a post of each other ledger.
	combined int
	shares   map[WriterID]int
}

// recent is a set of the last mostRecent ids that were added.
type recent struct {
	set map[PostID]bool
	// list has the ids in the order in which they were added, beginning at first.
	list  []PostID
	first int
}

// mostRecent is how many posts are remembered after they were settled.
const mostRecent = 4096

// add adds an id, in place of the one that was added first if there are many.
func (r *recent) add(id PostID) {
	if r.set == nil {
		r.set = map[PostID]bool{}
	}
	if r.set[id] {
		return
	}
	if r.set[id] = true; len(r.list) < mostRecent {
		r.list = append(r.list, id)
		return
	}
	delete(r.set, r.list[r.first])
	r.list[r.first], r.first = id, (r.first+1)%mostRecent
}

// posted is a post of this ledger.
type posted struct {
	id PostID
	// of are the proposals in the post, in order.
	of []postedProposal
}

// postedProposal is a proposal of a run.
type postedProposal struct {
	run *run
	at  int
}

const (
	// hotFor is how long after an entry of another ledger this one posts and does not race.
	hotFor = 25 * time.Millisecond
	// leastPatience is how long a ledger waits at least for others to settle its post.
	leastPatience = 10 * time.Millisecond
	// mostGather is how long a ledger waits at most for the posts of others.
	mostGather = 5 * time.Millisecond
	// postProposals is how many proposals a post may have: those after them wait for the next one.
	postProposals = 8192
	// mostPosts is how many posts of one ledger wait at most.
	mostPosts = 4
	// turnLength is after how many entries with posts of others the turn is handed on.
	turnLength = 32
)

// shouldPost reports whether this ledger posts its proposals and does not append them by itself.
func (l *Ledger) shouldPost() bool {
	return l.poster != nil && l.w.turn != l.self && time.Since(l.w.newestAt) < hotFor && l.w.retry.IsZero()
}

// overdue reports whether others should have settled the posts of this ledger by now.
func (c *combiner) overdue() bool { return len(c.posted) > 0 && !time.Now().Before(c.patient) }

// post stores those proposals of the open group as a post that are in no post yet. It reports false if it posted none
// because they change nothing, or are too large for a post, and no others wait.
func (l *Ledger) post() bool {
	p := &posted{id: PostID{l.self, l.w.postNumber + 1}}
	data := l.openPost(p)
	if len(p.of) == 0 {
		return len(l.w.posted) > 0
	}
	l.w.postNumber++
	start := time.Now()
	err := l.poster.Post(l.life, Post{p.id, data})
	l.w.took = max(l.w.took, time.Since(start))
	if len(l.w.posted) == 0 {
		l.w.patient = time.Now().Add(max(leastPatience, 4*l.w.took))
	}
	if l.w.posted = append(l.w.posted, p); err != nil { // it may be stored later: it is withdrawn at once
		l.w.patient = time.Now()
	}
	l.stats.posts.Add(1)
	return true
}

// openPost encodes the proposals of the open group that are in no post, or their first ones. A proposal without an id gets
// one: should it be in the log by this ledger's own hand before the post arrives, the post has no effect.
func (l *Ledger) openPost(p *posted) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due.Store(false)
	if l.stale && len(l.w.posted) == 0 {
		l.rejudge(nil)
	}
	if !l.stale && len(l.open.changes) == 0 {
		return nil
	}
	l.stale = true // what arrives now is judged when the post is settled
	var list []*orbit.Proposal
	for _, r := range l.open.runs {
		if r.posted {
			continue
		}
		if len(list) >= postProposals {
			l.due.Store(true)
			break
		}
		r.keep()
		r.posted = true
		for i := range r.proposals {
			if r.settled != nil && r.settled[i] {
				continue
			}
			if r.proposals[i].ID.IsZero() {
				r.proposals[i].ID = orbit.NewProposalID()
			}
			list, p.of = append(list, &r.proposals[i]), append(p.of, postedProposal{r, i})
		}
	}
	data, err := encodePost(list, l.mostChanges)
	if err != nil { // nothing is posted: commit says why
		for _, of := range p.of {
			of.run.posted = false
		}
		p.of = nil
	}
	return data
}

// readPosts returns the posts of other ledgers that are not settled. It leaves out posts that this version cannot read. Their
// writers append such proposals themselves after a while.
func (c *combiner) readPosts(self WriterID) (list []judgedPost) {
	var rest []Post
	for _, p := range c.posts {
		if p.Writer != self && !c.gone.set[p.PostID] {
			proposals, err := decodePost(p.Data)
			if err != nil {
				continue
			}
			list = append(list, judgedPost{p.PostID, proposals})
		}
		rest = append(rest, p)
	}
	c.posts = rest
	return list
}

// forOthers reports whether this ledger has to append the posts of others: it is its turn.
func (c *combiner) forOthers(self WriterID) bool {
	return c.turn == self && slices.ContainsFunc(c.posts, func(p Post) bool { return p.Writer != self })
}

// judgedPost is a post and the proposals in it.
type judgedPost struct {
	id        PostID
	proposals []orbit.Proposal
}

// judgePosts judges the proposals of others, and adds their changes to the open group. It requires mu.
func (l *Ledger) judgePosts(posts []judgedPost) (settled []Settlement) {
	for _, p := range posts {
		s := Settlement{Post: p.id, Revisions: make([]orbit.Revision, len(p.proposals))}
		out, changes := l.judge.Commit(p.proposals)
		for i := range out {
			s.Revisions[i] = out[i].Revision
		}
		l.open.changes = append(l.open.changes, changes...)
		settled = append(settled, s)
	}
	return settled
}

// handOn returns the ledger that gets the turn after an entry of this ledger; zero: it stays here.
func (c *combiner) handOn(self WriterID, settled []Settlement) (next WriterID) {
	seen := map[WriterID]bool{}
	for _, s := range settled {
		if !seen[s.Post.Writer] && s.Post.Writer != self {
			seen[s.Post.Writer] = true
			c.shares[s.Post.Writer]++
		}
	}
	if len(seen) > 0 {
		c.combined++
	}
	if c.combined < turnLength {
		return next
	}
	after := func(w WriterID) WriterID { // the ids in their order, beginning behind self
		for i := range w {
			w[i] -= self[i]
		}
		return w
	}
	for w, n := range c.shares {
		if n < c.combined/2 {
			continue
		}
		if a, b := after(w), after(next); next == (WriterID{}) || bytes.Compare(a[:], b[:]) < 0 {
			next = w
		}
	}
	c.combined = 0
	clear(c.shares)
	return next
}

// appended notes that an entry of this ledger is the newest, and which posts wait after it.
func (c *combiner) appended(e *Entry, posts []Post) {
	c.entered(e)
	c.posts = posts
	c.gather = time.Time{}
	clear(c.expected)
	for _, s := range e.Settled {
		if s.Post.Writer != e.Writer {
			c.expected[s.Post.Writer] = true
		}
	}
}

// entered notes which posts the newest entry settles, and whose turn it is after it.
func (c *combiner) entered(e *Entry) {
	for _, s := range e.Settled {
		c.gone.add(s.Post)
	}
	c.turn, c.newestAt = e.Writer, time.Now()
	if e.Next != (WriterID{}) {
		c.turn = e.Next
	}
}

// gathers reports whether the next entry should wait for posts of ledgers that are likely to post soon.
func (l *Ledger) gathers() bool {
	w := &l.w
	for _, p := range w.posts {
		delete(w.expected, p.Writer)
	}
	if len(w.expected) == 0 || w.turn != l.self {
		w.gather = time.Time{}
		return false
	}
	if w.gather.IsZero() {
		w.gather = time.Now().Add(min(2*w.took, mostGather))
	}
	if time.Now().Before(w.gather) {
		return true
	}
	clear(w.expected)
	w.gather = time.Time{}
	return false
}

// settled takes over the outcomes of proposals of this ledger that another one has committed. What that one has refused is
// judged again. It requires mu.
func (l *Ledger) settled(s *Settlement, at Index) {
	i := slices.IndexFunc(l.w.posted, func(p *posted) bool { return p.id == s.Post })
	if i < 0 || len(s.Revisions) != len(l.w.posted[i].of) {
		return
	}
	for k, of := range l.w.posted[i].of {
		r := of.run
		r.posted, r.floor = false, max(r.floor, at+1)
		if s.Revisions[k] == 0 {
			continue
		}
		if r.settled == nil {
			r.settled, r.out = make([]bool, len(r.proposals)), make([]orbit.Outcome, len(r.proposals))
		}
		r.settled[of.at], r.out[of.at] = true, orbit.Outcome{Revision: s.Revisions[k]}
	}
	if l.w.posted = slices.Delete(l.w.posted, i, i+1); len(l.w.posted) > 0 {
		l.w.patient = time.Now().Add(max(leastPatience, 4*l.w.took))
	}
	l.open.runs = slices.DeleteFunc(l.open.runs, func(r *run) bool {
		if r.settled == nil || slices.Contains(r.settled, false) {
			return false
		}
		close(r.done)
		return true
	})
	if len(l.open.runs) > 0 {
		l.due.Store(true)
	}
}

// withdrawn returns the posts of this ledger that have no effect any more once an entry of its own has their proposals: those
// that wait, those that were given up, and those that have come late.
func (c *combiner) withdrawn(self WriterID) (list []PostID) {
	for _, p := range c.posted {
		list = append(list, p.id)
	}
	list = append(list, c.orphans...)
	for _, p := range c.posts {
		if p.Writer == self && !slices.Contains(list, p.PostID) {
			list = append(list, p.PostID)
		}
	}
	return list
}

// orphan gives up the posts of this ledger, because their callers get an error.
func (c *combiner) orphan() {
	for _, p := range c.posted {
		c.orphans = append(c.orphans, p.id)
	}
	c.posted = nil
}

// forget drops the posts of this ledger after an entry of its own has withdrawn them. It requires mu.
func (c *combiner) forget() {
	for _, p := range c.posted {
		for _, of := range p.of {
			of.run.posted = false
		}
	}
	c.posted, c.orphans = nil, nil
}
