"""HTTP/1.1 client: connections, a pool of them, TLS, proxies, credentials, streams of lines. Knows no API."""
