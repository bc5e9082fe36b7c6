package doctor

import (
	"context"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

func checkEncryption(_ context.Context, x *examination) (verdict, error) {
	if x.Address == "" {
		return skip("the address of the database is not known", ""), nil
	}
	hosts, mode, fix := postgresTLS(x.Address)
	if x.MySQL != nil {
		hosts, mode, fix = mysqlTLS(x.Address)
	}
	var far []string
	for _, host := range hosts {
		if !isLocal(host) {
			far = append(far, host)
		}
	}
	switch {
	case len(far) == 0:
		return ok("the connection stays on this machine"), nil
	case fix != "":
		return warn(fix, "%s is reached with %s: anyone between can read or change everything, and get the password", some(far), mode), nil
	}
	return ok("%s proves who it is (%s)", some(far), mode), nil
}

var (
	hostOf    = regexp.MustCompile(`(?:^|\s)host(?:addr)?\s*=\s*'?([^\s']*)`)
	sslmodeOf = regexp.MustCompile(`(?:^|\s)sslmode\s*=\s*'?([^\s']*)`)
)

// postgresTLS returns the hosts of an address, its sslmode, and what is better; "" if nothing is.
func postgresTLS(address string) (hosts []string, mode, fix string) {
	value := func(of *regexp.Regexp) string {
		if found := of.FindStringSubmatch(address); found != nil {
			return found[1]
		}
		return ""
	}
	list, sslmode := value(hostOf), value(sslmodeOf)
	if u, err := url.Parse(address); err == nil && strings.HasPrefix(u.Scheme, "postgres") {
		list, sslmode = u.Host, u.Query().Get("sslmode")
		if host := u.Query().Get("host"); host != "" {
			list = host
		}
	}
	for host := range strings.SplitSeq(list, ",") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		hosts = append(hosts, strings.Trim(host, "[]"))
	}
	if sslmode == "verify-full" {
		return hosts, "sslmode=verify-full", ""
	}
	if sslmode == "" {
		sslmode = "require" // the default of lib/pq
	}
	return hosts, "sslmode=" + sslmode, "add sslmode=verify-full to the address, and sslrootcert=FILE if its authority is your own"
}

// mysqlTLS is postgresTLS for MySQL and MariaDB.
func mysqlTLS(address string) (hosts []string, mode, fix string) {
	config, err := mysql.ParseDSN(address)
	if u, errURL := url.Parse(address); errURL == nil && u.Host != "" {
		config, err = mysql.ParseDSN("/?tls=" + url.QueryEscape(u.Query().Get("tls")))
		if err == nil {
			config.Addr = u.Host
		}
	}
	if err != nil {
		return nil, "", ""
	}
	host := config.Addr
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch mode = "tls=" + config.TLSConfig; config.TLSConfig {
	case "", "false":
		return []string{host}, "no TLS", "add tls=true to the address"
	case "preferred", "skip-verify":
		return []string{host}, mode, "add tls=true to the address"
	}
	return []string{host}, mode, ""
}

// isLocal reports whether a host is this machine: a loopback address, or the folder of a socket.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || strings.HasPrefix(host, "/") || ip != nil && ip.IsLoopback()
}
