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
	log, err := etcdledger.OpenLog(ctx, client, etcdledger.LogOptions{Prefix: prefix, Existing: true})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer func() { _ = log.Close() }() // it has only been read
	_, err = b.ReadLog(ctx, log, 0)
	return err
}

// ReadLog reads the entries of a log after an index, and returns the index of the last one, also with an error. It fails if
// some of them have been removed.
func (b *Book) ReadLog(ctx context.Context, log logledger.Log, after logledger.Index) (logledger.Index, error) {
	b.init()
	for {
		page, err := log.Read(ctx, after)
		if err != nil {
			return after, fmt.Errorf("audit: %w", err)
		}
		for _, data := range page.Entries {
			e, err := logledger.DecodeEntry(data)
			if err != nil {
				return after, fmt.Errorf("audit: entry %d: %w", after+1, err)
			}
			after++
			b.Add(e.Changes...)
		}
		if !page.More {
			return after, nil
		}
	}
}
