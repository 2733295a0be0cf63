package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// tlsSettings are what brokers are told and checked by. The files are read at
// each connection, so that certificates can be changed while a job runs.
type tlsSettings struct {
	on         bool
	roots      string // file; empty: the system's
	cert, key  string // files; empty: the job shows no certificate
	serverName string // empty: the host of each broker's address
	config     *tls.Config
}

// TLS encrypts connections, and checks brokers' certificates against the roots
// that the system trusts and the host names that brokers are reached by.
func TLS() ClusterOption { return clusterOption(func(c *Cluster) { c.given.tls.on = true }) }

// TLSRoots is TLS with the certificate authorities of a PEM file instead of the
// system's. The file is read again at each connection.
func TLSRoots(file string) ClusterOption {
	return clusterOption(func(c *Cluster) { c.given.tls.on, c.given.tls.roots = true, file })
}

// TLSCertificate is TLS where the job shows a certificate, too (mTLS). Both files
// are PEM, the key unencrypted; they are read again at each connection.
func TLSCertificate(certFile, keyFile string) ClusterOption {
	return clusterOption(func(c *Cluster) {
		c.given.tls.on, c.given.tls.cert, c.given.tls.key = true, certFile, keyFile
		if certFile == "" && keyFile == "" {
			c.fail(errors.New("TLSCertificate was given no files"))
		}
	})
}

// TLSServerName is TLS where all brokers' certificates must be for this name,
// whatever addresses the brokers are reached by.
func TLSServerName(name string) ClusterOption {
	return clusterOption(func(c *Cluster) { c.given.tls.on, c.given.tls.serverName = true, name })
}

// TLSConfig is TLS as cfg says, for what the other options can't. It can't be
// combined with them, and must verify brokers: InsecureSkipVerify is refused
// unless one of the config's own functions verifies instead. An empty ServerName
// is the host of each broker's address.
func TLSConfig(cfg *tls.Config) ClusterOption {
	return clusterOption(func(c *Cluster) {
		if cfg == nil {
			c.fail(errors.New("TLSConfig was given none"))
			return
		}
		c.given.tls.on, c.given.tls.config = true, cfg.Clone()
	})
}

func (t *tlsSettings) check() (errs []error) {
	if (t.cert == "") != (t.key == "") {
		errs = append(errs, errors.New("a TLS certificate needs both its files: the certificate's and its key's"))
	}
	if t.config == nil {
		return errs
	}
	if t.roots != "" || t.cert != "" || t.key != "" || t.serverName != "" {
		errs = append(errs, errors.New("TLSConfig can't be combined with the other options for TLS: put it all into the config"))
	}
	if t.config.InsecureSkipVerify && t.config.VerifyConnection == nil && t.config.VerifyPeerCertificate == nil {
		errs = append(errs, errors.New("the TLS config verifies nobody (InsecureSkipVerify): anybody could pose as the broker; name the authority that signed its certificate instead"))
	}
	return errs
}

// load makes the config, from the files as they are now.
func (t *tlsSettings) load() (*tls.Config, error) {
	if t.config != nil {
		return t.config, nil
	}
	cfg := &tls.Config{ServerName: t.serverName}
	if t.roots != "" {
		pem, err := os.ReadFile(t.roots)
		if err != nil {
			return nil, fmt.Errorf("read the TLS roots: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form: a Java key store must be exported first, as by keytool -exportcert -rfc", t.roots)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("the TLS certificate in %s with the key in %s: %w", t.cert, t.key, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialer returns what opens connections. Files that can't be read now are an
// error; those that can't be read at a later connection, as in the midst of a
// change, are used as they last were.
func (s *settings) dialer() (dialFunc, error) {
	if !s.tls.on {
		return dialPlain, nil
	}
	last, err := s.tls.load()
	if err != nil {
		return nil, err
	}
	t := s.tls
	var mu sync.Mutex
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		if cfg, err := t.load(); err == nil {
			last = cfg
		}
		cfg := last
		mu.Unlock()
		return dialTLS(ctx, network, address, cfg)
	}, nil
}

func dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, network, address)
}

func dialTLS(ctx context.Context, network, address string, cfg *tls.Config) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the broker's address %q: %w", address, err)
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	raw, err := dialPlain(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // it is the handshake's error that counts
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("TLS handshake with %s: no answer within %v: does the broker speak TLS on that port? %w", address, dialTimeout, err)
		}
		return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
	}
	return conn, nil
}
