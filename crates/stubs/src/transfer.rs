//! What goes through the log, in the order of the parameters: before the call what it is checked
//! by, after the call what it gave.

use hindcast_interpose::model::*;
use proc_macro2::{Ident, TokenStream};
use quote::quote;

use crate::expression::{descriptor, length, reads_memory, value};
use crate::syntax::{code, constant, ident, name};

/// What the call is checked by, and its order.
pub fn before(function: &Function) -> TokenStream {
    let checked = function
        .parameters
        .iter()
        .filter(|parameter| !parameter.unchecked);
    let inputs = checked.map(input);
    let cache = function.cache.then(|| quote!(call.cache();));
    let order = function.sync.iter().map(sync);
    // The order of a transfer's two halves is part of it.
    let prepare = function.prepare.iter().map(|prepare| {
        let key = value(&prepare.key.value);
        quote!(call.sync_before(#key as u64);)
    });
    let commit = function.commit.iter().map(|commit| {
        let key = value(&commit.key.value);
        quote!(call.sync_after(#key as u64);)
    });
    quote!(#(#inputs)* #cache #(#order)* #(#prepare)* #(#commit)*)
}

fn input(parameter: &Parameter) -> TokenStream {
    let name = name(parameter);
    match &parameter.transfer {
        Transfer::Value => match parameter.kind {
            Type::Float { bytes: 4 } => quote!(call.input(#name.to_bits().into());),
            Type::Float { .. } => quote!(call.input(#name.to_bits());),
            _ => quote!(call.input(#name as u64);),
        },
        Transfer::In(size) | Transfer::InOut(size) => {
            let length = length(&size.value);
            let read = quote!(call.input_bytes(#name, #length););
            unless_null(parameter.nullable, &name, read)
        }
        Transfer::InString => quote!(call.input_str(#name.cast());),
        Transfer::Iovec { out: false, count } => {
            let count = length(&count.value);
            quote!(call.input_iovec(#name.cast(), #count);)
        }
        Transfer::Msghdr { out: false } => quote! {
            let message_ = &*#name.cast::<libc::msghdr>();
            call.input_iovec(message_.msg_iov, message_.msg_iovlen);
        },
        Transfer::Callback(_) => quote!(call.input(#name as u64);),
        Transfer::Out(_) | Transfer::Iovec { .. } | Transfer::Msghdr { .. } => quote!(),
        Transfer::Strings(_) => unreachable!("only in callbacks"),
    }
}

fn unless_null(nullable: bool, name: &Ident, line: TokenStream) -> TokenStream {
    match nullable {
        true => quote!(if !#name.is_null() { #line }),
        false => line,
    }
}

fn sync(sync: &Sync) -> TokenStream {
    let method = match sync.moment {
        Moment::Before => quote!(sync_before),
        Moment::After => quote!(sync_after),
    };
    match &sync.key.value {
        Value::Call(name, arguments) if name == "sync_key" => {
            let descriptor = descriptor(&arguments[0]);
            quote!(if let Some(key) = files::sync_key(#descriptor) { call.#method(key); })
        }
        Value::Parameter(name) => {
            let name = ident(name);
            quote!(call.#method(#name as u64);)
        }
        key => {
            let key = value(key);
            quote!(match #key as u64 { 0 => {} key => call.#method(key) })
        }
    }
}

/// What the call gave. `succeeded` is the condition under which most of it is there.
pub fn after(function: &Function, succeeded: Option<TokenStream>) -> TokenStream {
    let under_condition = |pending: &mut TokenStream| match (std::mem::take(pending), &succeeded) {
        (pending, _) if pending.is_empty() => pending,
        (pending, Some(condition)) => quote!(if #condition { #pending }),
        (pending, None) => pending,
    };
    // Runs of parameters with the same condition share it; the log has the order of the
    // parameters.
    let (mut all, mut pending) = (TokenStream::new(), TokenStream::new());
    for (index, parameter) in function.parameters.iter().enumerate() {
        let output = output(function, index, parameter);
        if parameter.always {
            all.extend(under_condition(&mut pending));
            all.extend(output);
        } else {
            pending.extend(output);
        }
    }
    pending.extend(effects(function));
    all.extend(under_condition(&mut pending));
    all
}

fn output(function: &Function, index: usize, parameter: &Parameter) -> TokenStream {
    let name = name(parameter);
    let data = match &parameter.transfer {
        Transfer::Out(_)
            if function
                .prepare
                .as_ref()
                .is_some_and(|prepare| prepare.buffer == index) =>
        {
            quote!()
        }
        Transfer::Out(size) | Transfer::InOut(size) => {
            let length = length(&size.value);
            let nullable = parameter.nullable && reads_memory(&size.value);
            let out = unless_null(nullable, &name, quote!(call.out(#name, #length);));
            let shadow = parameter.foreign.iter().map(|foreign| {
                let copy = copy(function, index + 1, foreign);
                quote!(if !#name.is_null() { foreign::replace(call, #name.cast(), #copy); })
            });
            quote!(#out #(#shadow)*)
        }
        Transfer::Iovec { out: true, count } => {
            let count = length(&count.value);
            quote!(call.out_iovec(#name.cast(), #count, result as usize);)
        }
        Transfer::Msghdr { out: true } => quote!(call.out_msghdr(#name.cast(), result as isize);),
        _ => quote!(),
    };
    let opened = parameter
        .new_descriptors
        .iter()
        .map(|kind| opened_behind(parameter, kind));
    let echo = parameter.echo.iter().map(|echo| {
        let (descriptor, size) = (descriptor(&echo.descriptor.value), length(&echo.size.value));
        quote!(call.echo(#descriptor, #name, #size);)
    });
    quote!(#data #(#opened)* #(#echo)*)
}

fn opened_behind(parameter: &Parameter, kind: &str) -> TokenStream {
    let name = name(parameter);
    match &parameter.transfer {
        _ if kind == "internal" => quote! {
            call.opened_internal(#name.cast::<i32>().read(), #name.cast::<i32>().add(1).read());
        },
        Transfer::Out(Expression {
            value: Value::Constant(bytes),
            ..
        }) => {
            let elements = (0..bytes / 4).map(|element| code(&element.to_string()));
            let kind = descriptor_kind(kind);
            quote!(#(call.opened(#name.cast::<i32>().add(#elements).read(), #kind);)*)
        }
        _ => quote!(),
    }
}

fn descriptor_kind(kind: &str) -> TokenStream {
    match kind {
        "file" => quote!(files::Kind::File),
        "socket" => quote!(files::Kind::Socket),
        "poll" => quote!(files::Kind::Poll),
        _ => quote!(files::Kind::Other),
    }
}

/// What a call that succeeded does beyond its parameters.
fn effects(function: &Function) -> TokenStream {
    let opened = function
        .new_descriptor
        .iter()
        .map(|kind| match kind.as_str() {
            "internal" => quote!(call.opened_internal(result as i32, result as i32);),
            kind => {
                let kind = descriptor_kind(kind);
                quote!(call.opened(result as i32, #kind);)
            }
        });
    let closed = function.closes.iter().map(|closes| {
        let descriptor = name(&function.parameters[*closes]);
        quote!(files::closed(#descriptor as i32);)
    });
    let prepared = function.prepare.iter().map(|prepare| {
        let buffer = &function.parameters[prepare.buffer];
        let (Transfer::Out(size) | Transfer::InOut(size)) = &buffer.transfer else {
            unreachable!("the reader checked")
        };
        let size = match size.uses_result {
            true => quote!(0),
            false => length(&size.value),
        };
        let (key, buffer) = (value(&prepare.key.value), name(buffer));
        quote!(foreign::prepare(#key as u64, #buffer, #size);)
    });
    let committed = function.commit.iter().map(|commit| {
        let (key, size) = (value(&commit.key.value), length(&commit.size.value));
        quote!(foreign::commit(call, #key as u64, #size);)
    });
    quote!(#(#opened)* #(#closed)* #(#prepared)* #(#committed)*)
}

/// How the library's memory is copied: its size, who owns the copy, and a number that tells apart
/// the pointers that functions hand out. The size is asked while recording only, so it may call the
/// library.
pub fn copy(function: &Function, index: usize, foreign: &Foreign) -> TokenStream {
    let size = match &foreign.size {
        None => quote!(None),
        Some(size) => {
            let length = length(&size.value);
            quote!(Some(&|| #length))
        }
    };
    let owner = match &foreign.owner {
        Owner::None => quote!(None),
        Owner::Thread => quote!(Thread),
        Owner::Process => quote!(Process),
        Owner::Callback => quote!(Callback),
        Owner::Until(key) => {
            let key = value(&key.value);
            quote!(Until(#key as u64))
        }
    };
    let (constant, index) = (constant(function), code(&index.to_string()));
    quote!(#size, foreign::Owner::#owner, (functions::#constant.0 as u64) << 8 | #index)
}
