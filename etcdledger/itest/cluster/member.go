package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

// Role is the name under which [process.Main] must know [Serve].
const Role = "etcd-member"

// memberConfig is the configuration of a member's process.
type memberConfig struct {
	Name, Dir    string
	Client, Peer string // addresses
	Initial      string // all members, as name=url,...
	Joined       bool   // it has a data directory
	Heartbeat    time.Duration
	NoSync       bool
	Login        time.Duration
	Log          string
}

// report is a line that a member sends.
type report struct {
	// Ready is the member's id, in the report that it serves.
	Ready types.ID `json:"ready,omitempty"`
	// Done is a command that the member has carried out.
	Done string `json:"done,omitempty"`
}

// Serve is the role of a member: an embedded etcd server that runs until its context ends. It reads the commands "cut
// ID" and "mend ID", after which it stops or resumes the exchange of messages with another member.
func Serve(ctx context.Context, self *process.Self) error {
	var c memberConfig
	if err := self.Config(&c); err != nil {
		return err
	}
	config, err := c.embed()
	if err != nil {
		return err
	}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("cluster: member %s: %w", c.Name, err)
	}
	go obey(etcd, self)
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-ctx.Done():
		return nil // members are killed, and need no graceful end
	}
	if err := self.Say(report{Ready: etcd.Server.MemberID()}); err != nil {
		return err
	}
	select {
	case err := <-etcd.Err():
		return err
	case <-etcd.Server.StopNotify():
		return errors.New("cluster: the server stopped by itself")
	case <-ctx.Done():
		return nil
	}
}

// embed returns the configuration as the embedded server takes it.
func (c *memberConfig) embed() (*embed.Config, error) {
	client, err := url.Parse("http://" + c.Client)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse("http://" + c.Peer)
	if err != nil {
		return nil, err
	}
	e := embed.NewConfig()
	e.Name, e.Dir = c.Name, c.Dir
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	e.ListenPeerUrls, e.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	e.InitialCluster, e.InitialClusterToken = c.Initial, "orbit-itest"
	if c.Joined {
		e.ClusterState = embed.ClusterStateFlagExisting
	}
	e.TickMs, e.ElectionMs = uint(c.Heartbeat.Milliseconds()), uint(10*c.Heartbeat.Milliseconds())
	e.UnsafeNoFsync = c.NoSync
	if c.Login > 0 {
		e.AuthTokenTTL = uint(c.Login.Seconds())
		e.BcryptCost = 4 // the least: checking passwords is slow on purpose, and slower still with the race detector
	}
	e.LogOutputs, e.LogLevel = []string{c.Log}, "warn"
	return e, nil
}

// obey runs the member's commands.
func obey(etcd *embed.Etcd, self *process.Self) {
	for line := range self.Told {
		what, who, _ := strings.Cut(line, " ")
		id, err := types.IDFromString(who)
		if err != nil {
			continue
		}
		switch what {
		case "cut":
			etcd.Server.CutPeer(id)
		case "mend":
			etcd.Server.MendPeer(id)
		}
		_ = self.Say(report{Done: line})
	}
}
