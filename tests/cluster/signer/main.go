// signer is an unmodified controller for an image that holds nothing else. It finds its API server as every pod does,
// and writes its pod's name into an annotation of each ConfigMap that it is shown.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	account    = "/var/run/secrets/kubernetes.io/serviceaccount"
	annotation = "signed-by"
	path       = "/api/v1/namespaces/work/configmaps"
)

type list struct {
	Items []struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	} `json:"items"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(must(os.ReadFile(filepath.Join(account, "ca.crt")))) {
		log.Fatal("ca.crt holds no certificate")
	}
	token := string(must(os.ReadFile(filepath.Join(account, "token"))))
	server := "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}}
	ask := func(method, path, kind string, body []byte) ([]byte, error) {
		request := must(http.NewRequest(method, server+path, bytes.NewReader(body)))
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", kind)
		answer, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		content, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, content)
		}
		return content, err
	}

	var isReady atomic.Bool
	http.HandleFunc("/readyz", func(answer http.ResponseWriter, _ *http.Request) {
		if !isReady.Load() {
			http.Error(answer, "nothing was listed yet", http.StatusInternalServerError)
		}
	})
	go func() { log.Fatal(http.ListenAndServe(":8081", nil)) }()

	signature := must(json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{annotation: os.Getenv("POD_NAME")}},
	}))
	for ; ; time.Sleep(200 * time.Millisecond) {
		content, err := ask("GET", path, "application/json", nil)
		if err != nil {
			log.Print(err)
			continue
		}
		var found list
		must(0, json.Unmarshal(content, &found))
		isReady.Store(true)
		for _, item := range found.Items {
			if item.Metadata.Annotations[annotation] != "" {
				continue
			}
			if _, err := ask("PATCH", path+"/"+item.Metadata.Name, "application/merge-patch+json", signature); err != nil {
				log.Print(err)
			}
		}
	}
}
