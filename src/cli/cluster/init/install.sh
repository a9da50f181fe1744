#!/bin/sh
# Puts what is beside it into its places on {{name}}, and starts nothing. As root.
set -e
cd "$(dirname "$0")"
install -d -m 755 /etc/margay
install -d -m 700 /var/lib/margay
install -m 600 -o postgres -g postgres patroni.yml bootstrap.sh /etc/margay
install -m 600 etcd.env margay.env /etc/margay
install -m 644 margay.toml /etc/margay
install -m 644 margay-etcd.service margay-patroni.service margay.service /etc/systemd/system
for key in identity-key encryption-keys; do
    # A volume that was used with other keys cannot be read without them.
    if [ ! -e /var/lib/margay/$key ]; then install -m 600 $key /var/lib/margay; fi
done
systemctl daemon-reload
