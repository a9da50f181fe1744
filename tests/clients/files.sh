# Makes the files that the client scripts send, once per run, in $FILES.

mkdir -p "$FILES/tree/deep/er"
: >"$FILES/empty"
printf 'x' >"$FILES/one"
head -c 102400 /dev/urandom >"$FILES/100k"
head -c $((24 * 1024 * 1024 + 12345)) /dev/urandom >"$FILES/large"
printf 'hello, margay\n' >"$FILES/hello"
for number in $(seq 1 40); do
    printf 'file %s\n' "$number" >"$FILES/tree/file $number.txt"
done
head -c 300000 /dev/urandom >"$FILES/tree/deep/binary"
printf 'deeper\n' >"$FILES/tree/deep/er/plus+and%percent"
: >"$FILES/tree/deep/empty"
printf 'ü\n' >"$FILES/tree/deep/ünïcödé"
