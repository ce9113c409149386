package conn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// redisURL is a parsed URL.
type redisURL struct {
	addresses          []string
	username, password string
	master             string // of Sentinel
	database           int
	cluster, tls       bool
}

// parseRedisURL parses a URL by hand: package net/url does not accept several hosts, and its errors would
// show the password.
func parseRedisURL(raw string) (redisURL, error) {
	var t redisURL
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return t, errors.New(`it does not begin with a scheme: use redis://host:port, ` +
			`redis+sentinel://host:port,host:port/master or redis+cluster://host:port,host:port`)
	}
	mode, err := t.setScheme(scheme)
	if err != nil {
		return t, err
	}
	rest, query, _ := strings.Cut(rest, "?")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := t.setUser(rest[:at]); err != nil {
			return t, err
		}
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	defaultPort := "6379"
	if mode == "sentinel" {
		defaultPort = "26379"
	}
	t.addresses, err = parseHosts(hosts, defaultPort)
	if err != nil {
		return t, err
	}
	if err := t.setPath(mode, path); err != nil {
		return t, err
	}
	return t, t.setQuery(mode, query)
}

func (t *redisURL) setScheme(scheme string) (mode string, err error) {
	base, mode, _ := strings.Cut(strings.ToLower(scheme), "+")
	t.tls, t.cluster = base == "rediss", mode == "cluster"
	if (base != "redis" && base != "rediss") || !slices.Contains([]string{"", "sentinel", "cluster"}, mode) {
		return "", fmt.Errorf("scheme %q is not known: use redis, rediss (TLS), "+
			"or one of them with +sentinel or +cluster", scheme)
	}
	return mode, nil
}

func (t *redisURL) setUser(info string) error {
	name, password, _ := strings.Cut(info, ":")
	var err, err2 error
	t.username, err = url.PathUnescape(name)
	t.password, err2 = url.PathUnescape(password)
	if err != nil || err2 != nil {
		return errors.New("user or password has a '%' that is no escape: write it as %25")
	}
	return nil
}

func parseHosts(hosts, defaultPort string) ([]string, error) {
	var addrs []string
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, errors.New("a host is missing: write host:port, several with commas between")
		}
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), defaultPort
			if strings.Contains(name, ":") && name == host {
				name = "" // more colons than a port needs, and no brackets
			}
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || name == "" || strings.Contains(host, "@") {
			return nil, errors.New("a host is not host:port, with a port of 1 to 65535; an IPv6 address goes in brackets")
		}
		addrs = append(addrs, net.JoinHostPort(name, port))
	}
	return addrs, nil
}

// setPath parses the path: the database, or the name of the master.
func (t *redisURL) setPath(mode, path string) error {
	path = strings.TrimSuffix(path, "/")
	switch {
	case mode == "sentinel":
		if path == "" || strings.Contains(path, "/") {
			return errors.New("the name of the master is missing: write redis+sentinel://host:port/mymaster")
		}
		var err error
		t.master, err = url.PathUnescape(path)
		if err != nil {
			return errors.New("the name of the master has a '%' that is no escape: write it as %25")
		}
	case mode == "cluster" && path != "" && path != "0":
		return errors.New("a cluster has one database only: leave out what follows the hosts")
	case mode == "" && path != "":
		return t.setDatabase(path)
	}
	if mode == "" && len(t.addresses) > 1 {
		return errors.New("one server has one host: several are for redis+sentinel:// or redis+cluster://")
	}
	return nil
}

func (t *redisURL) setQuery(mode, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("what follows '?' cannot be read: write name=value, several with & between")
	}
	for name, v := range values {
		if name != "db" || mode == "cluster" || len(v) != 1 {
			return fmt.Errorf("parameter %q is not known: only db=number is, once, and not for a cluster", name)
		}
		if err := t.setDatabase(v[0]); err != nil {
			return err
		}
	}
	return nil
}

func (t *redisURL) setDatabase(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return errors.New("the database is not a number from 0")
	}
	t.database = n
	return nil
}
