package claim

import (
	"errors"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// followAgain is how long a source is left alone that could not be followed.
const followAgain = time.Second

// follow hands on what a source says of itself, until it fails or the pool ends, no faster than the loop can
// hear it. After a failure the loop is told only when the source has had time to recover; it then asks for a
// full listing, and follows from there.
func (p *Pool) follow(f Follower, after uint64) {
	ctx, taken := p.looking.ctx, make(chan struct{}, 1)
	guard.Call(func() error {
		for {
			l, err := f.Follow(ctx, after)
			if err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			vain := l.Version <= after && (l.Version > 0 || l.Partial && len(l.Slots)+len(l.Gone) == 0)
			after = l.Version
			p.mail.post(func(m *mail) { m.listings = append(m.listings, heard{Listing: l, taken: taken}) })
			select {
			case <-taken:
			case <-ctx.Done():
			}
			if vain {
				pause(ctx, followAgain)
			}
		}
	}, func(err error) {
		if ctx.Err() == nil {
			pause(ctx, followAgain)
			p.heard(heard{err: errors.Join(errors.New("it can not be followed"), err)})
		}
	})
}
