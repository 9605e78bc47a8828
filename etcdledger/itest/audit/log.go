package audit

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/logledger"
)

// Read reads the whole history of the ledger with a prefix from etcd: every entry of its log from the first on. It fails
// if some of them have been removed.
func (b *Book) Read(ctx context.Context, client *clientv3.Client, prefix string) (err error) {
	b.init()
	log, err := etcdledger.OpenLog(ctx, client, etcdledger.LogOptions{Prefix: prefix, Existing: true})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = log.Close() }() // it has only been read
	for at := logledger.Index(0); ; {
		page, err := log.Read(ctx, at)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		for _, data := range page.Entries {
			at++
			e, err := logledger.DecodeEntry(data)
			if err != nil {
				return fmt.Errorf("audit: entry %d: %w", at, err)
			}
			b.Add(e.Changes...)
		}
		if !page.More {
			return nil
		}
	}
}
