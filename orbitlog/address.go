package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

// address says where a log is.
type address struct {
	// kind is "file", "etcd" or "postgres".
	kind string
	// dir is the folder of a file log.
	dir string
	// endpoints and prefix are those of an etcd.
	endpoints []string
	prefix    string
	// url, schema and name are those of a Postgres database. The URL may have a password.
	url, schema, name string
}

// parse reads an address.
func parse(text string) (address, error) {
	kind, place, _ := strings.Cut(text, ":")
	switch {
	case kind == "file" && place != "":
		return address{kind: kind, dir: place}, nil
	case kind == "etcd" && place != "":
		return parseEtcd(place)
	case (kind == "postgres" || kind == "postgresql") && strings.HasPrefix(place, "//"):
		return parsePostgres(text)
	}
	return address{}, errors.New("a log is named file:DIR, etcd:URL[,URL...][/PREFIX] or postgres://...; one of these names is none") // it may have a password in it
}

// parseEtcd reads the endpoints of an etcd. What follows the last one, as the path of a URL, is the prefix.
func parseEtcd(text string) (address, error) {
	if strings.Contains(text, "@") {
		return address{}, errors.New("etcd: an endpoint has a user or a password in it; set ETCDCTL_USER and ETCDCTL_PASSWORD")
	}
	a := address{kind: "etcd", endpoints: strings.Split(text, ",")}
	for i, endpoint := range a.endpoints {
		scheme, rest, isURL := strings.Cut(endpoint, "://")
		if !isURL {
			scheme, rest = "", endpoint
		}
		host, path, _ := strings.Cut(rest, "/")
		if path = strings.Trim(path, "/"); host == "" || path != "" && i < len(a.endpoints)-1 {
			return address{}, fmt.Errorf("etcd:%s: each endpoint is a URL or HOST:PORT, and only the last one is followed by a prefix", text)
		}
		a.endpoints[i], a.prefix = host, cmp.Or(path, "orbit")+"/"
		if isURL {
			a.endpoints[i] = scheme + "://" + host
		}
	}
	return a, nil
}

// parsePostgres reads the URL of a database, and takes the names of schema and ledger out of it.
func parsePostgres(text string) (address, error) {
	base, query, _ := strings.Cut(text, "?")
	if strings.Contains(query, "@") { // the question mark may be one of a password
		return address{}, errors.New("the Postgres URL has an @ behind a question mark; write them as %40 and %3F where they are part of a name or a password")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return address{}, errors.New("the query of the Postgres URL, after the question mark, cannot be read")
	}
	a := address{kind: "postgres", url: base, schema: values.Get("schema"), name: values.Get("name")}
	values.Del("schema")
	values.Del("name")
	if len(values) > 0 {
		a.url += "?" + values.Encode()
	}
	return a, nil
}

// String returns the address without passwords.
func (a address) String() string {
	switch a.kind {
	case "file":
		return "file:" + a.dir
	case "etcd":
		return "etcd:" + strings.Join(a.endpoints, ",") + "/" + strings.TrimSuffix(a.prefix, "/")
	}
	base, _, _ := strings.Cut(a.url, "?")
	scheme, rest, _ := strings.Cut(base, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		rest = rest[at+1:]
	}
	return fmt.Sprintf("%s://%s?schema=%s&name=%s", scheme, rest, cmp.Or(a.schema, "orbit"), cmp.Or(a.name, "orbit"))
}

// use says what a log is opened for.
type use int

const (
	toRead   use = iota // nothing is written
	toChange            // it must be there
	toMake              // it is made if it is not there
)

// store is an open log.
type store struct {
	logledger.Log
	closeClient func() error
}

// Close closes the log.
func (s *store) Close() error { return errors.Join(s.Log.Close(), s.closeClient()) }

// open opens the log at an address.
func (c *command) open(ctx context.Context, a address, purpose use) (*store, error) {
	s := &store{closeClient: func() error { return nil }}
	var err error
	switch a.kind {
	case "file":
		s.Log, err = diskledger.OpenLog(a.dir, diskledger.LogOptions{ReadOnly: purpose == toRead, Existing: purpose == toChange})
	case "etcd":
		return c.openEtcd(ctx, a, purpose)
	default:
		s.Log, err = pgledger.OpenLog(ctx, a.url, pgledger.LogOptions{Schema: a.schema, Name: a.name, Existing: purpose != toMake})
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openEtcd opens a log in etcd.
func (c *command) openEtcd(ctx context.Context, a address, purpose use) (*store, error) {
	config, err := c.etcdConfig(a.endpoints)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	log, err := etcdledger.OpenLog(ctx, client, etcdledger.LogOptions{Prefix: a.prefix, Existing: purpose != toMake})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &store{log, client.Close}, nil
}

// etcdConfig returns the settings of a client, with what the variables of etcdctl say.
func (c *command) etcdConfig(endpoints []string) (clientv3.Config, error) {
	config := clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		Logger: zap.NewNop(), Username: c.env("ETCDCTL_USER"), Password: c.env("ETCDCTL_PASSWORD"),
	}
	if user, password, both := strings.Cut(config.Username, ":"); both {
		config.Username, config.Password = user, password
	}
	authority, cert := c.env("ETCDCTL_CACERT"), c.env("ETCDCTL_CERT")
	if authority == "" && cert == "" {
		return config, nil
	}
	config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		pem, err := os.ReadFile(authority)
		if err != nil {
			return config, fmt.Errorf("ETCDCTL_CACERT: %w", err)
		}
		config.TLS.RootCAs = x509.NewCertPool()
		if !config.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return config, fmt.Errorf("ETCDCTL_CACERT: %s has no certificate", authority)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, c.env("ETCDCTL_KEY"))
		if err != nil {
			return config, fmt.Errorf("ETCDCTL_CERT and ETCDCTL_KEY: %w", err)
		}
		config.TLS.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
