//! The IAM API: what each action answers, and that nobody gets at another account by it.

mod server;

use std::collections::BTreeMap;

use margay_s3::auth::PayloadForm;
use server::{Answer, Server};

const ALLOW_ALL: &str = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}"#;
const LIST_BUCKETS: &str =
    r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:ListAllMyBuckets","Resource":"*"}}"#;
const TRUST: &str =
    r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}}"#;

/// `shop` is an account with the powerless `till`; `mallory` another one with the almighty `minion`.
async fn server() -> Server {
    Server::with_users(&[
        ("shop", None, &[]),
        ("till", Some("shop"), &[]),
        ("mallory", None, &[]),
        ("minion", Some("mallory"), &[ALLOW_ALL]),
    ])
    .await
}

const SHOP: &str = "111111111111";

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// An action with its fields as `Field=value`.
async fn call(server: &Server, who: &str, action: &str, fields: &[&str]) -> Answer {
    let mut form = format!("Action={action}&Version=2010-05-08");
    for field in fields {
        let (name, value) = field.split_once('=').expect("a field is NAME=VALUE");
        form.push_str(&format!("&{name}={}", encode(value)));
    }
    send(server, who, "iam", &form).await
}

async fn send(server: &Server, who: &str, service: &'static str, form: &str) -> Answer {
    let request =
        server.request("POST", "/").header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    request.form(PayloadForm::Sha256(sha256(form.as_bytes()))).body(form).send_to(service, who).await
}

#[tokio::test]
async fn a_user_from_its_making_to_its_end() {
    let server = server().await;
    let made = call(
        &server,
        "shop",
        "CreateUser",
        &["UserName=Ann", "Path=/staff/", "Tags.member.1.Key=a", "Tags.member.1.Value=b"],
    )
    .await
    .expect(200);
    assert!(made.text().starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<CreateUserResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><CreateUserResult><User><Path>/staff/</Path><UserName>Ann</UserName>"));
    assert_eq!(made.element("Arn"), format!("arn:aws:iam::{SHOP}:user/staff/Ann"));
    let id = made.element("UserId").to_owned();
    call(&server, "shop", "CreateUser", &["UserName=ANN"]).await.refused(409, "EntityAlreadyExists");
    call(&server, "shop", "CreateUser", &["UserName=a/b"]).await.refused(400, "ValidationError");
    call(&server, "shop", "CreateUser", &["UserName=b", "Path=staff"]).await.refused(400, "ValidationError");
    call(&server, "shop", "CreateUser", &[]).await.refused(400, "ValidationError");
    assert_eq!(call(&server, "shop", "GetUser", &["UserName=ann"]).await.expect(200).element("UserId"), id);
    let key = call(&server, "shop", "CreateAccessKey", &["UserName=Ann"]).await.expect(200);
    let (key, secret) = (key.element("AccessKeyId").to_owned(), key.element("SecretAccessKey").to_owned());
    let listed = call(&server, "shop", "ListAccessKeys", &["UserName=Ann"]).await.expect(200);
    assert_eq!((listed.element("AccessKeyId"), listed.element("Status")), (key.as_str(), "Active"));
    assert!(!listed.text().contains(&secret));
    // What may be is said by policies, at once.
    server.request("GET", "/").send_as(&key).await.refused(403, "AccessDenied");
    let policy = format!("PolicyDocument={LIST_BUCKETS}");
    call(&server, "shop", "PutUserPolicy", &["UserName=Ann", "PolicyName=list", &policy]).await.expect(200);
    server.request("GET", "/").send_as(&key).await.expect(200);
    let shown = call(&server, "shop", "GetUserPolicy", &["UserName=Ann", "PolicyName=list"]).await.expect(200);
    assert!(shown.element("PolicyDocument").starts_with("%7B%22Version%22%3A"));
    call(&server, "shop", "GetUserPolicy", &["UserName=Ann", "PolicyName=no"]).await.refused(404, "NoSuchEntity");
    let bad = ["UserName=Ann", "PolicyName=bad", "PolicyDocument={}"];
    call(&server, "shop", "PutUserPolicy", &bad).await.refused(400, "MalformedPolicyDocument");
    let twice = r#"PolicyDocument={"Statement":[{"Sid":"a","Effect":"Deny","Action":"*","Resource":"*"},{"Sid":"a","Effect":"Allow","Action":"*","Resource":"*"}]}"#;
    let twice = ["UserName=Ann", "PolicyName=bad", twice];
    call(&server, "shop", "PutUserPolicy", &twice).await.refused(400, "MalformedPolicyDocument");
    // A new name, the same user.
    call(&server, "shop", "UpdateUser", &["UserName=ann", "NewUserName=Anna", "NewPath=/"]).await.expect(200);
    server.request("GET", "/").send_as(&key).await.expect(200);
    let moved = call(&server, "shop", "GetUser", &["UserName=Anna"]).await.expect(200);
    assert_eq!(
        (moved.element("UserId"), moved.element("Arn")),
        (id.as_str(), &*format!("arn:aws:iam::{SHOP}:user/Anna"))
    );
    let status = format!("AccessKeyId={key}");
    call(&server, "shop", "UpdateAccessKey", &["UserName=Anna", &status, "Status=Inactive"]).await.expect(200);
    server.request("GET", "/").send_as(&key).await.refused(403, "InvalidAccessKeyId");
    call(&server, &key, "GetUser", &[]).await.refused(403, "InvalidClientTokenId");
    // Nothing that is in use goes.
    call(&server, "shop", "DeleteUser", &["UserName=Anna"]).await.refused(409, "DeleteConflict");
    call(&server, "shop", "DeleteUserPolicy", &["UserName=Anna", "PolicyName=list"]).await.expect(200);
    call(&server, "shop", "DeleteUser", &["UserName=Anna"]).await.refused(409, "DeleteConflict");
    call(&server, "shop", "DeleteAccessKey", &["UserName=till", &status]).await.refused(404, "NoSuchEntity");
    call(&server, "shop", "DeleteAccessKey", &["UserName=Anna", &status]).await.expect(200);
    call(&server, "shop", "DeleteUser", &["UserName=Anna"]).await.expect(200);
    call(&server, "shop", "GetUser", &["UserName=Anna"]).await.refused(404, "NoSuchEntity");
}

#[tokio::test]
async fn who_stands_for_an_account_is_none_of_its_users() {
    let server = server().await;
    let own = call(&server, "shop", "GetUser", &[]).await.expect(200);
    assert_eq!((own.element("Arn"), own.element("UserId")), (&*format!("arn:aws:iam::{SHOP}:root"), SHOP));
    assert_eq!(call(&server, "shop", "ListUsers", &[]).await.expect(200).elements("UserName"), ["till"]);
    for action in ["GetUser", "DeleteUser", "ListAccessKeys", "CreateAccessKey", "ListUserPolicies"] {
        call(&server, "shop", action, &["UserName=shop"]).await.refused(404, "NoSuchEntity");
    }
    let key = call(&server, "shop", "CreateAccessKey", &[]).await.expect(200);
    let key = format!("AccessKeyId={}", key.element("AccessKeyId"));
    assert_eq!(call(&server, "shop", "ListAccessKeys", &[]).await.expect(200).elements("AccessKeyId").len(), 2);
    call(&server, "shop", "DeleteAccessKey", &[&key]).await.expect(200);
    // Root is the account that it holds, and its keys are not made here.
    let root = call(&server, "root", "GetUser", &[]).await.expect(200);
    assert_eq!(root.element("Arn"), "arn:aws:iam::000000000000:root");
    call(&server, "root", "CreateAccessKey", &[]).await.refused(400, "InvalidInput");
    call(&server, "root", "GetUser", &["UserName=till"]).await.refused(404, "NoSuchEntity");
    call(&server, "root", "CreateUser", &["UserName=till"]).await.expect(200);
    assert_eq!(call(&server, "shop", "ListUsers", &[]).await.expect(200).elements("UserName"), ["till"]);
}

#[tokio::test]
async fn lists_have_an_order_and_pages() {
    let server = server().await;
    for (name, path) in [("b", "/x/"), ("A", "/x/y/"), ("d", "/x/"), ("C", "/z/")] {
        call(&server, "shop", "CreateGroup", &[&format!("GroupName={name}"), &format!("Path={path}")])
            .await
            .expect(200);
    }
    let names = |answer: &Answer| answer.elements("GroupName").into_iter().map(str::to_owned).collect::<Vec<_>>();
    let all = call(&server, "shop", "ListGroups", &[]).await.expect(200);
    assert_eq!(
        (names(&all), all.element("IsTruncated")),
        (vec!["A", "b", "C", "d"].into_iter().map(str::to_owned).collect(), "false")
    );
    let (mut found, mut marker) = (Vec::new(), None::<String>);
    loop {
        let after = format!("Marker={}", marker.clone().unwrap_or_default());
        let page = call(&server, "shop", "ListGroups", &["PathPrefix=/x/", "MaxItems=2", &after]).await.expect(200);
        found.extend(names(&page));
        if page.element("IsTruncated") == "false" {
            break;
        }
        marker = Some(page.element("Marker").to_owned());
    }
    assert_eq!(found, ["A", "b", "d"]);
    for bad in ["MaxItems=0", "MaxItems=1001", "MaxItems=x"] {
        call(&server, "shop", "ListGroups", &[bad]).await.refused(400, "ValidationError");
    }
}

#[tokio::test]
async fn groups_and_managed_policies_give_rights() {
    let server = server().await;
    let document = format!("PolicyDocument={LIST_BUCKETS}");
    let made = call(&server, "shop", "CreatePolicy", &["PolicyName=list", "Path=/p/", &document]).await.expect(200);
    let own = format!("PolicyArn={}", made.element("Arn"));
    assert_eq!(own, format!("PolicyArn=arn:aws:iam::{SHOP}:policy/p/list"));
    let (managed, other) =
        ("PolicyArn=arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess", "PolicyArn=arn:aws:iam::aws:policy/No");
    call(&server, "shop", "CreateGroup", &["GroupName=desk"]).await.expect(200);
    call(&server, "shop", "AddUserToGroup", &["GroupName=desk", "UserName=till"]).await.expect(200);
    for policy in [own.as_str(), managed] {
        server.request("GET", "/").send_as("till").await.refused(403, "AccessDenied");
        call(&server, "shop", "AttachGroupPolicy", &["GroupName=desk", policy]).await.expect(200);
        server.request("GET", "/").send_as("till").await.expect(200);
        let listed = call(&server, "shop", "ListAttachedGroupPolicies", &["GroupName=desk"]).await.expect(200);
        assert_eq!(format!("PolicyArn={}", listed.element("PolicyArn")), policy);
        call(&server, "shop", "DeleteGroup", &["GroupName=desk"]).await.refused(409, "DeleteConflict");
        call(&server, "shop", "DetachGroupPolicy", &["GroupName=desk", policy]).await.expect(200);
        call(&server, "shop", "DetachGroupPolicy", &["GroupName=desk", policy]).await.refused(404, "NoSuchEntity");
    }
    call(&server, "shop", "AttachUserPolicy", &["UserName=till", &own]).await.expect(200);
    call(&server, "shop", "DeletePolicy", &[&own]).await.refused(409, "DeleteConflict");
    let entities = call(&server, "shop", "ListEntitiesForPolicy", &[&own]).await.expect(200);
    assert_eq!(entities.elements("UserName"), ["till"]);
    call(&server, "shop", "AttachUserPolicy", &["UserName=till", other]).await.refused(404, "NoSuchEntity");
    // The path belongs to the ARN that rights are asked for.
    let elsewhere = format!("PolicyArn=arn:aws:iam::{SHOP}:policy/list");
    call(&server, "shop", "GetPolicy", &[&elsewhere]).await.refused(404, "NoSuchEntity");
    let version = call(&server, "shop", "GetPolicyVersion", &[&own, "VersionId=v1"]).await.expect(200);
    assert!(version.element("Document").contains("ListAllMyBuckets"));
    let local = call(&server, "shop", "ListPolicies", &["Scope=Local"]).await.expect(200);
    assert_eq!(local.elements("PolicyName"), ["list"]);
}

#[tokio::test]
async fn the_default_version_of_a_policy_counts() {
    let server = server().await;
    let (list, nothing) = (
        format!("PolicyDocument={LIST_BUCKETS}"),
        r#"PolicyDocument={"Version":"2012-10-17","Statement":{"Effect":"Deny","Action":"*","Resource":"*"}}"#,
    );
    let policy = format!("PolicyArn=arn:aws:iam::{SHOP}:policy/list");
    let ask =
        async |action: &str, more: &[&str]| call(&server, "shop", action, &[&[&*policy][..], more].concat()).await;
    let till_lists = async || server.request("GET", "/").send_as("till").await.status;
    call(&server, "shop", "CreatePolicy", &["PolicyName=list", &list]).await.expect(200);
    ask("AttachUserPolicy", &["UserName=till"]).await.expect(200);
    assert_eq!(till_lists().await, 200);
    let made = ask("CreatePolicyVersion", &[nothing]).await.expect(200);
    assert_eq!((made.element("VersionId"), made.element("IsDefaultVersion")), ("v2", "false"));
    assert_eq!(till_lists().await, 200);
    ask("SetDefaultPolicyVersion", &["VersionId=v2"]).await.expect(200);
    assert_eq!(till_lists().await, 403);
    ask("DeletePolicyVersion", &["VersionId=v2"]).await.refused(409, "DeleteConflict");
    let shown = ask("GetPolicyVersion", &["VersionId=v1"]).await.expect(200);
    assert!(shown.element("Document").contains("ListAllMyBuckets") && shown.element("IsDefaultVersion") == "false");
    assert_eq!(ask("GetPolicy", &[]).await.expect(200).element("DefaultVersionId"), "v2");
    let made = ask("CreatePolicyVersion", &[&list, "SetAsDefault=true"]).await.expect(200);
    assert_eq!((made.element("VersionId"), made.element("IsDefaultVersion")), ("v3", "true"));
    assert_eq!(till_lists().await, 200);
    for version in ["v4", "v5"] {
        assert_eq!(ask("CreatePolicyVersion", &[&list]).await.expect(200).element("VersionId"), version);
    }
    ask("CreatePolicyVersion", &[&list]).await.refused(409, "LimitExceeded");
    let listed = ask("ListPolicyVersions", &[]).await.expect(200);
    assert_eq!(listed.elements("VersionId"), ["v5", "v4", "v3", "v2", "v1"]);
    let page = ask("ListPolicyVersions", &["MaxItems=2"]).await.expect(200);
    let marker = format!("Marker={}", page.element("Marker"));
    assert_eq!(
        ask("ListPolicyVersions", &["MaxItems=2", &marker]).await.expect(200).elements("VersionId"),
        ["v3", "v2"]
    );
    // A number is never given again.
    ask("DeletePolicyVersion", &["VersionId=v5"]).await.expect(200);
    assert_eq!(ask("CreatePolicyVersion", &[&list]).await.expect(200).element("VersionId"), "v6");
    for absent in ["VersionId=v5", "VersionId=v01", "VersionId=1", "VersionId=v99999999999"] {
        for action in ["GetPolicyVersion", "SetDefaultPolicyVersion", "DeletePolicyVersion"] {
            ask(action, &[absent]).await.refused(404, "NoSuchEntity");
        }
    }
    ask("CreatePolicyVersion", &["PolicyDocument={}"]).await.refused(400, "MalformedPolicyDocument");
    let managed = "PolicyArn=arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess";
    assert!(call(&server, "shop", "CreatePolicyVersion", &[managed, &list]).await.status >= 400);
    ask("DetachUserPolicy", &["UserName=till"]).await.expect(200);
    ask("DeletePolicy", &[]).await.refused(409, "DeleteConflict");
    for version in ["v1", "v2", "v4", "v6"] {
        ask("DeletePolicyVersion", &[&format!("VersionId={version}")]).await.expect(200);
    }
    ask("DeletePolicy", &[]).await.expect(200);
}

#[tokio::test]
async fn roles_and_identity_providers() {
    let server = server().await;
    let trust = format!("AssumeRolePolicyDocument={TRUST}");
    let role = ["RoleName=backup", "Path=/r/", &trust, "Description=copies", "MaxSessionDuration=7200"];
    call(&server, "shop", "CreateRole", &role).await.expect(200);
    let shown = call(&server, "shop", "GetRole", &["RoleName=BACKUP"]).await.expect(200);
    assert_eq!(
        (shown.element("Arn"), shown.element("Description"), shown.element("MaxSessionDuration")),
        (&*format!("arn:aws:iam::{SHOP}:role/r/backup"), "copies", "7200")
    );
    call(&server, "shop", "UpdateRole", &["RoleName=backup", "MaxSessionDuration=60"])
        .await
        .refused(400, "ValidationError");
    let bad = ["RoleName=backup", "PolicyDocument={}"];
    call(&server, "shop", "UpdateAssumeRolePolicy", &bad).await.refused(400, "MalformedPolicyDocument");
    call(&server, "shop", "TagRole", &["RoleName=backup", "Tags.member.1.Key=k", "Tags.member.1.Value=v"])
        .await
        .expect(200);
    call(&server, "shop", "UntagRole", &["RoleName=backup", "TagKeys.member.1=k"]).await.expect(200);
    assert!(!call(&server, "shop", "ListRoleTags", &["RoleName=backup"]).await.expect(200).text().contains("<Key>"));
    call(&server, "shop", "DeleteRole", &["RoleName=backup"]).await.expect(200);
    let thumbprint = format!("ThumbprintList.member.1={}", "a".repeat(40));
    let provider = ["Url=https://id.example.com/main", "ClientIDList.member.1=app", &thumbprint];
    let made = call(&server, "shop", "CreateOpenIDConnectProvider", &provider).await.expect(200);
    let arn = format!("OpenIDConnectProviderArn={}", made.element("OpenIDConnectProviderArn"));
    assert_eq!(arn, format!("OpenIDConnectProviderArn=arn:aws:iam::{SHOP}:oidc-provider/id.example.com/main"));
    call(&server, "shop", "CreateOpenIDConnectProvider", &provider).await.refused(409, "EntityAlreadyExists");
    call(&server, "shop", "AddClientIDToOpenIDConnectProvider", &[&arn, "ClientID=more"]).await.expect(200);
    let shown = call(&server, "shop", "GetOpenIDConnectProvider", &[&arn]).await.expect(200);
    assert!(shown.text().contains("<ClientIDList><member>app</member><member>more</member></ClientIDList>"));
    call(&server, "shop", "DeleteOpenIDConnectProvider", &[&arn]).await.expect(200);
    call(&server, "shop", "GetOpenIDConnectProvider", &[&arn]).await.refused(404, "NoSuchEntity");
}

/// Fields that every action finds what it needs in, all of it the shop's.
fn fields_of_the_shop() -> Vec<String> {
    [
        "UserName=till",
        "GroupName=desk",
        "RoleName=backup",
        "PolicyName=own",
        "AccessKeyId=till",
        "Status=Inactive",
        "NewUserName=stolen",
        "NewGroupName=stolen",
        "Url=https://id.example.com/shop",
        "ClientID=x",
        "VersionId=v1",
        "TagKeys.member.1=k",
        "Tags.member.1.Key=k",
        "Tags.member.1.Value=v",
        "Description=stolen",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        format!("PolicyArn=arn:aws:iam::{SHOP}:policy/list"),
        format!("OpenIDConnectProviderArn=arn:aws:iam::{SHOP}:oidc-provider/id.example.com/shop"),
        format!("PolicyDocument={ALLOW_ALL}"),
        format!("AssumeRolePolicyDocument={TRUST}"),
        format!("ThumbprintList.member.1={}", "b".repeat(40)),
    ])
    .collect()
}

/// The shop as it shows itself.
async fn the_shop(server: &Server) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    let fields = fields_of_the_shop();
    for action in margay_s3::iam::actions().filter(|action| action.starts_with("Get") || action.starts_with("List")) {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        let answer = call(server, "shop", action, &fields).await;
        let text = answer.text().to_owned();
        let id = answer.element("RequestId").to_owned();
        shown.insert(action.to_owned(), text.replace(&id, ""));
    }
    shown
}

#[tokio::test]
async fn no_way_from_one_accounts_key_to_anothers_anything() {
    let server = server().await;
    let fields = fields_of_the_shop();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let policy = format!("PolicyDocument={LIST_BUCKETS}");
    let trust = format!("AssumeRolePolicyDocument={TRUST}");
    call(&server, "shop", "CreateGroup", &["GroupName=desk"]).await.expect(200);
    call(&server, "shop", "CreateRole", &["RoleName=backup", &trust]).await.expect(200);
    call(&server, "shop", "CreatePolicy", &["PolicyName=list", &policy]).await.expect(200);
    call(&server, "shop", "CreateOpenIDConnectProvider", &["Url=https://id.example.com/shop"]).await.expect(200);
    for (action, holder) in
        [("PutUserPolicy", "UserName=till"), ("PutGroupPolicy", "GroupName=desk"), ("PutRolePolicy", "RoleName=backup")]
    {
        call(&server, "shop", action, &[holder, "PolicyName=own", &policy]).await.expect(200);
    }
    let before = the_shop(&server).await;
    for action in margay_s3::iam::actions() {
        // Without a right, without a signature, with a signature for another service, with another form than signed.
        call(&server, "till", action, &fields).await.refused(403, "AccessDenied");
        call(&server, "", action, &fields).await.refused(403, "MissingAuthenticationToken");
        let form = format!("Action={action}&UserName=till");
        for service in ["s3", "sts"] {
            let answer = send(&server, "shop", service, &form).await;
            assert!((400..=403).contains(&answer.status), "{action} signed for {service}: {}", answer.text());
        }
        let unsigned = server.request("POST", "/").header("content-type", "application/x-www-form-urlencoded");
        let answer = unsigned.body(form).send_to("iam", "shop").await;
        assert_eq!(answer.status, 400, "{action} with a body that is not signed: {}", answer.text());
        // With all rights in another account: that one's things, or none.
        for who in ["mallory", "minion", "root"] {
            let answer = call(&server, who, action, &fields).await;
            let text = answer.text();
            assert!(!text.contains(SHOP) && !text.contains("id-of-till"), "{who} {action}: {text}");
        }
    }
    assert_eq!(the_shop(&server).await, before);
}

#[tokio::test]
async fn rights_are_asked_for_on_the_arn() {
    let server = server().await;
    let document = |action: &str, resource: &str| {
        format!(
            r#"PolicyDocument={{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Action":"{action}","Resource":"arn:aws:iam::{SHOP}:{resource}"}}}}"#
        )
    };
    let put = async |action: &str, resource: &str| {
        let policy = document(action, resource);
        call(&server, "shop", "PutUserPolicy", &["UserName=till", "PolicyName=p", &policy]).await.expect(200);
    };
    put("iam:CreateUser", "user/team/*").await;
    call(&server, "till", "CreateUser", &["UserName=x", "Path=/team/"]).await.expect(200);
    call(&server, "till", "CreateUser", &["UserName=y", "Path=/boss/"]).await.refused(403, "AccessDenied");
    call(&server, "till", "CreateUser", &["UserName=y"]).await.refused(403, "AccessDenied");
    // What is not there is not told from what may not be touched.
    call(&server, "till", "GetUser", &["UserName=nobody"]).await.refused(403, "AccessDenied");
    put("iam:UpdateUser", "user/team/*").await;
    call(&server, "till", "UpdateUser", &["UserName=x", "NewPath=/boss/"]).await.refused(403, "AccessDenied");
    call(&server, "till", "UpdateUser", &["UserName=x", "NewUserName=z"]).await.expect(200);
    put("iam:GetUser", "user/${aws:username}").await;
    assert_eq!(call(&server, "till", "GetUser", &[]).await.expect(200).element("UserName"), "till");
    call(&server, "till", "GetUser", &["UserName=z"]).await.refused(403, "AccessDenied");
}

#[tokio::test]
async fn forms_are_bounded_and_actions_known() {
    let server = server().await;
    let long = format!("Action=ListUsers&x={}", "y".repeat(64 * 1024));
    assert_eq!(send(&server, "shop", "iam", &long).await.status, 400);
    send(&server, "shop", "iam", "Action=Frobnicate").await.refused(400, "InvalidAction");
    send(&server, "shop", "iam", "Version=2010-05-08").await.refused(400, "ValidationError");
    send(&server, "shop", "iam", "Action=ListUsers&x=%").await.refused(400, "ValidationError");
    let who = send(&server, "till", "sts", "Action=GetCallerIdentity").await.expect(200);
    assert_eq!((who.element("Arn"), who.element("UserId")), (&*format!("arn:aws:iam::{SHOP}:user/till"), "id-of-till"));
}
