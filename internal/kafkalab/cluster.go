package kafkalab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say what [Start] starts.
type Options struct {
	// Dir is the nodes' folder: it is made, and must hold nothing yet.
	Dir string
	// Port is the first of the ports that the cluster takes, two a node, and
	// four a node with Proxy. 0: free ones are looked for.
	Port int
	// Nodes is how many there are, 1 by default. Three or more replicate
	// everything three times, with min.insync.replicas 2.
	Nodes int
	// Proxy puts a proxy before every node: see [Cluster.Proxy].
	Proxy bool
	// Settings are lines of server.properties, as "key=value".
	Settings []string
	// Features are the levels of features, as "transaction.version=1".
	Features []string
	// Log is where the scripts report, nowhere by default.
	Log io.Writer
}

// A Cluster is one or more real brokers on this machine. They outlive this
// process unless [Cluster.Close] is called.
//
// The methods may be called from several goroutines, those of one node one
// after another.
type Cluster struct {
	dir, tools string
	log        io.Writer
	brokers    []string
	proxy      *Proxy

	mu   sync.Mutex
	pids []int // of each node, 0: not running
}

// Start makes and starts a cluster, and returns when every node serves: 5 to
// 20 seconds a node where the machine is busy. What it started before an error
// is stopped again.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	tools, err := toolsFolder()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "bootstrap")); err == nil {
		return nil, fmt.Errorf("%s holds a cluster already", dir)
	}
	c := &Cluster{dir: dir, tools: tools, log: o.Log, pids: make([]int, max(o.Nodes, 1))}
	if c.log == nil {
		c.log = io.Discard
	}
	args, err := c.plan(o)
	if err == nil {
		err = c.run(ctx, "start", args...)
	}
	if err == nil {
		err = c.learn()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// plan chooses the ports, opens the proxy, and returns start's arguments.
func (c *Cluster) plan(o Options) (args []string, err error) {
	nodes, each := len(c.pids), 2
	if o.Proxy {
		each = 4
	}
	port := o.Port
	if port == 0 {
		if port, err = freePorts(nodes * each); err != nil {
			return nil, err
		}
	}
	var routes []Route
	for i := range nodes {
		c.brokers = append(c.brokers, address(port+2*i))
		routes = append(routes, Route{Listen: address(port + 3*nodes + i), Upstream: address(port + 2*nodes + i)})
	}
	if o.Proxy {
		if c.proxy, err = NewProxy(routes...); err != nil {
			return nil, err
		}
		args = append(args, "--proxy", strconv.Itoa(port+3*nodes))
	}
	if nodes > 1 {
		args = append(args, "--cluster", strconv.Itoa(nodes))
	}
	for _, s := range o.Settings {
		args = append(args, "-o", s)
	}
	for _, f := range o.Features {
		args = append(args, "-f", f)
	}
	return append(args, c.dir, strconv.Itoa(port)), nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePorts returns the first of n ports in a row that are free now. It looks
// below the range that systems give to outgoing connections.
func freePorts(n int) (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(10000)
		free := true
		for i := 0; i < n && free; i++ {
			var l net.ListenConfig
			ln, err := l.Listen(context.Background(), "tcp", address(port+i))
			if free = err == nil; free {
				_ = ln.Close() // nothing was accepted
			}
		}
		if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row were found between 20000 and 30000", n)
}

// toolsFolder finds tools/kafka above the working directory.
func toolsFolder() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		tools := filepath.Join(dir, "tools", "kafka")
		if _, err := os.Stat(filepath.Join(tools, "start")); err == nil {
			return tools, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no tools/kafka in or above %s: run this within the module", at)
		}
	}
}

// run calls one of the scripts. Its error has what the script said.
func (c *Cluster) run(ctx context.Context, script string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.tools, script), args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = c.log, io.MultiWriter(c.log, &said)
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", script, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}

// node returns the folder of node i, which counts from 1.
func (c *Cluster) node(i int) (string, error) {
	if i < 1 || i > len(c.pids) {
		return "", fmt.Errorf("there is no node %d: the cluster has %d, from 1", i, len(c.pids))
	}
	if len(c.pids) == 1 {
		return c.dir, nil
	}
	return filepath.Join(c.dir, strconv.Itoa(i)), nil
}

// learn reads which processes the nodes are.
func (c *Cluster) learn() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.pids {
		dir, err := c.node(i + 1)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		switch {
		case errors.Is(err, os.ErrNotExist):
			c.pids[i] = 0
		case err != nil:
			return err
		default:
			if c.pids[i], err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
				return fmt.Errorf("%s/pid: %w", dir, err)
			}
		}
	}
	return nil
}

// Brokers returns the nodes' addresses, for clients that shall not be cut off.
func (c *Cluster) Brokers() []string { return c.brokers }

// Proxy returns what stands between the nodes and every client that was given
// [Proxy.Addrs] as its brokers, or nil without Options.Proxy. The nodes send
// such a client to the proxy for every further connection, too: they advertise
// it on a listener of its own.
func (c *Cluster) Proxy() *Proxy { return c.proxy }

// Dir returns the nodes' folder.
func (c *Cluster) Dir() string { return c.dir }

// StartNode starts node i, from 1, again, and returns when it serves. One that
// runs is left alone.
func (c *Cluster) StartNode(ctx context.Context, i int) error {
	dir, err := c.node(i)
	if err != nil {
		return err
	}
	if err := c.run(ctx, "start", dir); err != nil {
		return err
	}
	return c.learn()
}

// StopNode lets node i end by itself, and returns when it has.
func (c *Cluster) StopNode(ctx context.Context, i int) error {
	dir, err := c.node(i)
	if err != nil {
		return err
	}
	if err := c.run(ctx, "stop", dir); err != nil {
		return err
	}
	return c.learn()
}

// KillNode kills node i as a crash does, within microseconds of the call, and
// returns when nothing is left of it. One that doesn't run is no error.
func (c *Cluster) KillNode(ctx context.Context, i int) error {
	dir, err := c.node(i)
	if err != nil {
		return err
	}
	c.mu.Lock()
	pid := c.pids[i-1]
	c.mu.Unlock()
	if pid > 0 {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // the script finds out what remains
		}
	}
	if err := c.run(ctx, "stop", "-9", dir); err != nil {
		return err
	}
	return c.learn()
}

// Kill is [Cluster.KillNode] for all nodes at the same time.
func (c *Cluster) Kill(ctx context.Context) error {
	c.mu.Lock()
	for _, pid := range c.pids {
		if pid > 0 {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill() // the script finds out what remains
			}
		}
	}
	c.mu.Unlock()
	if err := c.run(ctx, "stop", "-9", c.dir); err != nil {
		return err
	}
	return c.learn()
}

// StartAll starts every node that doesn't run.
func (c *Cluster) StartAll(ctx context.Context) error {
	if err := c.run(ctx, "start", c.dir); err != nil {
		return err
	}
	return c.learn()
}

// Close kills the nodes and closes the proxy. The folder stays.
func (c *Cluster) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := c.Kill(ctx)
	if c.proxy != nil {
		c.proxy.Close()
	}
	return err
}
