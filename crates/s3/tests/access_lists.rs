//! Access lists as they are shown, and whose things are in a bucket that is open to others.

mod server;

use server::Server;

#[tokio::test]
async fn whoever_began_an_upload_is_told() {
    let server = Server::with_users(&[("victim", None, &[]), ("mallory", None, &[])]).await;
    server.request("PUT", "/vault").send_as("victim").await.expect(200);
    let open = server.request("PUT", "/vault?acl").header("x-amz-acl", "public-read-write");
    open.send_as("victim").await.expect(200);
    server.request("POST", "/vault/a?uploads").send_as("victim").await.expect(200);
    let made = server.request("POST", "/vault/b?uploads").send_as("mallory").await.expect(200);
    let listed = server.request("GET", "/vault?uploads").send_as("victim").await.expect(200);
    let (victim, mallory) = ("canonical-victim", "canonical-mallory");
    assert_eq!(listed.elements("ID"), [victim, victim, mallory, mallory]);
    let parts = format!("/vault/b?uploadId={}", made.element("UploadId"));
    let parts = server.request("GET", &parts).send_as("mallory").await.expect(200);
    assert_eq!(parts.elements("ID"), [mallory, mallory]);
    // What is open to everybody stands first.
    let list = server.request("GET", "/vault?acl").send_as("victim").await.expect(200);
    assert_eq!(list.elements("Permission"), ["READ", "WRITE", "FULL_CONTROL"]);
}
